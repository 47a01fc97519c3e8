"""One update of the weights: forward, backward, clipping, optimiser.

`HostUpdate` reads loss and norm before it changes a weight. `DeviceUpdate` reads nothing back from the GPU: its report
is copied in the background, and an update with a non-finite loss or gradient is skipped on the device. So a CUDA graph
can record it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from unrolled.kernels.unattended import unattended
from unrolled.training.average import Average
from unrolled.training.clipping import Clipping
from unrolled.training.gradients import GradientSum
from unrolled.training.graphs import Chunk, GraphChoice, UpdateGraphs
from unrolled.training.optimizers import bind_rate, noisy_weights, step_unless, updates_on_device
from unrolled.training.settings import TrainSettings
from unrolled.training.tbptt import TruncatedBPTT

HEADER = 6  # numbers before the norms in a report: loss, count, norm, clipped, learning rate, failed


@dataclass(frozen=True)
class Numbers:
    """An update in numbers: the summed loss of its batches, their scored steps, and the norm before clipping."""

    loss: float
    count: int
    norm: float
    clipped: bool
    lr: float
    failed: bool  # non-finite: the weights were not changed
    norms: Tensor  # of each weight's gradient, (P,)
    stop: bool = False  # some process was asked to stop


class RunningUpdate(Protocol):
    """An update that was begun."""

    def read(self) -> Numbers:
        """Wait for its end, and return its numbers."""
        ...


class Parts(NamedTuple):
    """The parts of a trainer that an update works on."""

    network: nn.Module
    tbptt: TruncatedBPTT
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    clipping: Clipping
    settings: TrainSettings
    device: torch.device
    usual_tokens: int | None
    average: Average | None = None  # that follows every update
    together: GradientSum | None = None  # of several processes
    noise: torch.Generator | None = None  # of the weights, the same in all processes


def accumulate(parts: Parts, chunks: Sequence[Chunk]) -> tuple[Tensor, Tensor]:
    """Add the gradients of all chunks to the weights' `.grad`; returns the summed loss and count."""
    losses, counts, together = [], [], parts.together
    scale: float | Tensor = 1 / len(chunks)
    if parts.scaler.is_enabled():
        scale = parts.scaler.scale(torch.ones((), device=parts.device)) / len(chunks)
    for number, chunk in enumerate(chunks, 1):
        if chunk.fresh:
            parts.tbptt.reset()
        if together is not None:
            together.begin(chunk.mark, last=number == len(chunks))
        with noisy_weights(parts.network, parts.settings.weight_noise, parts.noise):
            found = parts.tbptt.idle() if chunk.idle else parts.tbptt(chunk.batch.to(parts.device), scale=scale)
        losses.append(found.loss)
        counts.append(found.count)
    if together is not None:
        together.finish()
    if len(chunks) == 1:
        return losses[0], counts[0]
    return torch.stack(losses).sum(), torch.stack(counts).sum()


class HostUpdate:
    """An update whose numbers are read before it changes a weight. The average of the weights is the caller's."""

    averages = False

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    def bind(self) -> None:
        """Nothing to do after the optimiser's state was loaded: each update sets the learning rate."""

    def run(self, chunks: Sequence[Chunk], lr: float, step: int) -> Read:
        parts, settings = self.parts, self.parts.settings
        parts.optimizer.zero_grad(set_to_none=True)
        found, counted = accumulate(parts, chunks)
        loss, count = float(found), int(counted)
        if parts.usual_tokens is not None:
            lr *= count / parts.usual_tokens
        for group in parts.optimizer.param_groups:
            group["lr"] = lr
        parts.scaler.unscale_(parts.optimizer)
        norm, clipped, norms = parts.clipping(settings.clip_norm, settings.clip_value)
        failed = not math.isfinite(loss) or (not math.isfinite(norm) and not parts.scaler.is_enabled())
        if not failed:
            parts.scaler.step(parts.optimizer)
            parts.scaler.update()
        stop = parts.together is not None and parts.together.stopping
        return Read(Numbers(loss, count, norm, clipped, lr, failed, norms, stop))


@dataclass(frozen=True)
class Read:
    """An update that has ended."""

    numbers: Numbers

    def read(self) -> Numbers:
        return self.numbers


class DeviceUpdate:
    """An update on a GPU of which nothing is read while it runs.

    After a non-finite update, all later ones are skipped too, until somebody reads the numbers. `graph` records updates
    in CUDA graphs, one for each set of shapes.
    """

    def __init__(self, parts: Parts, graph: GraphChoice) -> None:
        self.parts, device = parts, parts.device
        self.averages = parts.average is not None
        self.base = torch.zeros((), device=device)  # the learning rate of the schedule
        self.rate = torch.zeros((), device=device)
        self.share = torch.zeros((), device=device)  # of the new weights in their average
        self.failed = torch.zeros((), device=device)
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's
        self.graphs = UpdateGraphs(self._compute, parts.network, parts.tbptt, stream, graph)
        self._given: dict[str, float] = {}  # in `base` and `share`
        self._reports = _Reports()
        self.bind()

    def bind(self) -> None:
        """Let the optimiser read its learning rate from the device; to be repeated after its state was loaded."""
        bind_rate(self.parts.optimizer, self.rate)

    def run(self, chunks: Sequence[Chunk], lr: float, step: int) -> Pending:
        """Begin the update; it is update number `step`, from 1."""
        self._give("base", lr)
        if self.parts.average is not None:
            self._give("share", self.parts.average.share(step))
        pending = self._reports.pending(self.graphs.run(chunks), torch.cuda.current_stream(self.parts.device))
        pending.stop = self.parts.together is not None and self.parts.together.stopping
        return pending

    def _give(self, name: str, number: float) -> None:
        """Write a number on the device, unless it is there already."""
        if self._given.get(name) != number:
            getattr(self, name).fill_(number)
            self._given[name] = number

    def _compute(self, chunks: Sequence[Chunk]) -> Tensor:
        """All of the update; the report is one vector."""
        parts, settings = self.parts, self.parts.settings
        parts.optimizer.zero_grad(set_to_none=True)
        with unattended():
            loss, count = accumulate(parts, chunks)
        count = count.float() if count.is_cuda else loss.new_full((), float(count))
        self.rate.copy_(self.base if parts.usual_tokens is None else self.base * (count / parts.usual_tokens))
        parts.scaler.unscale_(parts.optimizer)
        norm, clipped, norms = parts.clipping.clip(settings.clip_norm, settings.clip_value)
        self._step(loss, norm)
        if parts.average is not None:
            parts.average.move(self.share)
        header = (loss.float(), count, norm.float(), clipped.float(), self.rate, self.failed)
        return torch.cat([*(number.view(1) for number in header), norms.float()])

    def _step(self, loss: Tensor, norm: Tensor) -> None:
        """The optimiser's step, skipped on the device where a number is not finite."""
        optimizer, scaler = self.parts.optimizer, self.parts.scaler
        numbers = loss.float() if scaler.is_enabled() else torch.stack([loss.float(), norm.float()])
        lost = (numbers - numbers).sum() != 0  # NaN; `isfinite` takes four kernels for each number
        torch.maximum(self.failed, lost, out=self.failed)
        if scaler.is_enabled():  # it skips by itself, and lowers its scale
            scaler.step(optimizer)
            scaler.update()
            return
        step_unless(optimizer, self.failed, self.rate)


class _Report(NamedTuple):
    """A report on the host, the same memory as NumPy's array, and the end of its copy."""

    host: Tensor
    numbers: NDArray[np.float32]
    done: torch.cuda.Event


class _Reports:
    """Page-locked memory for the reports of updates: it takes longer to get than to use, so it is used again."""

    def __init__(self) -> None:
        self._free: list[_Report] = []

    def pending(self, report: Tensor, stream: torch.cuda.Stream) -> Pending:
        """Begin to copy a report on a stream."""
        if self._free:
            copy = self._free.pop()
        else:
            host = torch.empty(report.shape, dtype=report.dtype, pin_memory=True)
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch's
            copy = _Report(host, host.numpy(), done)
        copy.host.copy_(report, non_blocking=True)
        copy.done.record(stream)
        return Pending(copy, self._free)


class Pending:
    """An update on its way: the copy of its report waits for it in the background."""

    def __init__(self, copy: _Report, free: list[_Report]) -> None:
        self._copy, self._free, self.stop = copy, free, False
        self._numbers: Numbers | None = None

    def read(self) -> Numbers:
        if self._numbers is None:
            self._copy.done.synchronize()
            loss, count, norm, clipped, lr, failed = self._copy.numbers[:HEADER].tolist()
            norms = torch.from_numpy(self._copy.numbers[HEADER:].copy())
            self._free.append(self._copy)
            self._numbers = Numbers(loss, round(count), norm, bool(clipped), lr, bool(failed), norms, self.stop)
        return self._numbers


def make_update(parts: Parts, graph: GraphChoice) -> HostUpdate | DeviceUpdate:
    """The way to update that the device and the optimiser allow."""
    if updates_on_device(parts.optimizer, parts.scaler):
        return DeviceUpdate(parts, graph)
    return HostUpdate(parts)
