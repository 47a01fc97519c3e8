"""Gradients added up over processes, in pieces, while the backward pass still runs.

torch's DistributedDataParallel divides by the number of processes, not of tokens, asks every process for a batch, and
its constructor imports torch's compiler (4 seconds). This does what it does for the rest: buckets in the order in
which gradients come, one sum for each, all processes in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from unrolled.errors import UserError
from unrolled.training.ranks import Ranks

FIRST_BYTES, BUCKET_BYTES = 1 << 20, 8 << 20  # the first is small, so that sums begin early


class _Bucket:
    """Some gradients side by side in one buffer."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = parameters
        first = parameters[0]
        self.buffer = torch.zeros(sum(p.numel() for p in parameters), dtype=first.dtype, device=first.device)
        parts = torch.split(self.buffer, [p.numel() for p in parameters])
        self.views = [part.view(p.shape) for part, p in zip(parts, parameters, strict=True)]
        self.missing = len(parameters)
        self.sum: Any = None  # under way


class GradientSum:
    """The sum of all processes' gradients, and of the numbers of an update.

    `begin(last=True)` before the last backward pass of an update, `finish()` after it. A weight without a gradient in
    any process has none afterwards.
    """

    def __init__(self, network: nn.Module, ranks: Ranks) -> None:
        self.ranks = ranks
        self.parameters = [p for p in network.parameters() if p.requires_grad]
        self.device = self.parameters[0].device
        self.stop_asked: Callable[[], bool] = lambda: False
        self.stopping = False  # some process was asked to stop
        self._buckets = _cut(self.parameters[::-1])
        self._home = {p: bucket for bucket in self._buckets for p in bucket.parameters}
        self._mark, self._armed, self._next = 0, False, 0
        for parameter in self.parameters:
            parameter.register_post_accumulate_grad_hook(self._ready)  # type: ignore[no-untyped-call]

    def totals(self, loss: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        """The summed loss and count of a batch, of all processes."""
        numbers = torch.stack([loss.detach().to(self.device, torch.float64), count.to(self.device, torch.float64)])
        signs = torch.tensor([float(self.stop_asked()), self._mark], dtype=torch.float64)
        if self.device.type == "cpu":
            together = self.ranks.sum(torch.cat([numbers, signs]))
            numbers, signs = together[:2], together[2:]
        else:  # the signs go from host to host: a look at a GPU's numbers would wait for it
            self.ranks.sum(signs)
            self.ranks.sum(numbers)
        self.stopping = bool(signs[0])
        if signs[1] != self.ranks.world * self._mark:
            raise out_of_step(self.ranks, "it reads other examples than the others")
        return numbers[0], numbers[1]

    def begin(self, mark: int, *, last: bool) -> None:
        """Before a backward pass on a batch with this mark; the sums begin in the last one of an update."""
        self._mark, self._armed, self._next = mark, last, 0
        for bucket in self._buckets:
            bucket.missing, bucket.sum = len(bucket.parameters), None

    def finish(self) -> None:
        """After the last backward pass: wait for all sums, and let the weights have them."""
        self._armed = False
        has = torch.tensor([p.grad is not None for p in self.parameters], dtype=torch.float32, device=self.device)
        while self._next < len(self._buckets):
            self._launch()
        self.ranks.sum(has)
        with self.ranks.waiting():
            for bucket in self._buckets:
                bucket.sum.wait()
        used = {p for p, n in zip(self.parameters, has.tolist(), strict=True) if n}
        for bucket in self._buckets:
            for parameter, view in zip(bucket.parameters, bucket.views, strict=True):
                parameter.grad = view if parameter in used else None

    def _ready(self, parameter: Tensor) -> None:
        """A gradient is complete in this process."""
        if not self._armed:
            return
        bucket = self._home[parameter]  # type: ignore[index]  # torch types the hook's argument as a Tensor
        bucket.missing -= 1
        while self._next < len(self._buckets) and self._buckets[self._next].missing == 0:
            self._launch()

    @torch.no_grad()
    def _launch(self) -> None:
        """Begin the sum of the next bucket; all processes begin them in the same order."""
        bucket = self._buckets[self._next]
        self._next += 1
        given = [(view, p.grad) for view, p in zip(bucket.views, bucket.parameters, strict=True)]
        bucket.buffer.zero_() if any(gradient is None for _, gradient in given) else None
        own = [(view, gradient) for view, gradient in given if gradient is not None]
        if own:
            torch._foreach_copy_([view for view, _ in own], [gradient for _, gradient in own])
        bucket.sum = self.ranks.begin_sum(bucket.buffer)


def out_of_step(ranks: Ranks, problem: str) -> UserError:
    """The error of processes that no longer train the same network on the same data."""
    return UserError(
        f"Process {ranks.rank} of {ranks.world} is out of step: {problem}.",
        "Check that all have the same files and versions. Resume the run from its last checkpoint.",
    )


def _cut(parameters: Sequence[nn.Parameter]) -> list[_Bucket]:
    """Neighbours of one kind in buckets of limited size."""
    parts: list[list[nn.Parameter]] = []
    size, limit = 0, FIRST_BYTES
    for parameter in parameters:
        number = parameter.numel() * parameter.element_size()
        if not parts or size + number > limit or parts[-1][0].dtype != parameter.dtype:
            limit = BUCKET_BYTES if parts else FIRST_BYTES
            parts.append([])
            size = 0
        parts[-1].append(parameter)
        size += number
    return [_Bucket(part) for part in parts]
