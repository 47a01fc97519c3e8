"""Averages of the weights during training, often better than the last ones (Polyak & Juditsky 1992)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

Better = Callable[[float, float | None], bool]
"""True if a score is better than the best so far."""


class Average:
    """w̄ ← d w̄ + (1 − d) w after every update; d rises to `decay` over the first updates.

    >>> layer = nn.Linear(1, 1, bias=False)
    >>> average = Average(layer, 0.5)
    >>> with torch.no_grad():
    ...     before = layer.weight.clone()
    ...     _ = layer.weight.add_(1)
    >>> average.update(step=100)
    >>> with average.in_place():
    ...     bool(torch.allclose(layer.weight, before + 0.5))
    True
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self._weights = [p for p in network.parameters() if p.requires_grad]
        self.means = [p.detach().clone() for p in self._weights]

    def share(self, step: int) -> float:
        """The share 1 − d of the weights after update number `step`."""
        return 1 - min(self.decay, (1 + step) / (10 + step))

    @torch.no_grad()
    def update(self, step: int) -> None:
        """After update number `step`."""
        torch._foreach_lerp_(self.means, [p.detach() for p in self._weights], self.share(step))

    @torch.no_grad()
    def move(self, share: Tensor) -> None:
        """`update` with a share on the weights' device, so that a CUDA graph sees it change."""
        change = torch._foreach_sub([p.detach() for p in self._weights], self.means)
        torch._foreach_mul_(change, share)
        torch._foreach_add_(self.means, change)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """A block in which the network has the averaged weights."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for weight, mean in zip(self._weights, self.means, strict=True):
            now = weight.detach().clone()
            weight.copy_(mean)
            mean.copy_(now)

    def mark(self) -> None:
        """Before an evaluation: nothing to do, since every update counts."""

    def judged(self, score: float, better: Better) -> None:
        """Scores have no effect."""

    @torch.no_grad()
    def load(self, means: list[Tensor]) -> None:
        for mean, stored in zip(self.means, means, strict=True):
            mean.copy_(stored)


class _Mean:
    """An average of the weights that temporarily replaces them."""

    def __init__(self, network: nn.Module) -> None:
        self._weights = [p for p in network.parameters() if p.requires_grad]

    def _average(self) -> list[Tensor]:
        """The average; empty before it begins."""
        raise NotImplementedError

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """A block in which the network has the averaged weights, if there are any."""
        now = [p.detach().clone() for p in self._weights]
        if mean := self._average():
            self._fill(mean)
        try:
            yield
        finally:
            self._fill(now)

    @torch.no_grad()
    def _fill(self, values: list[Tensor]) -> None:
        for weight, value in zip(self._weights, values, strict=True):
            weight.copy_(value)


class LastMean(_Mean):
    """The mean of the weights at the last `count` evaluations (Vaswani et al. 2017 take 5 to 20 checkpoints).

    >>> layer = nn.Linear(1, 1, bias=False)
    >>> mean = LastMean(layer, 2)
    >>> for value in (1.0, 2.0, 4.0):
    ...     _ = nn.init.constant_(layer.weight, value)
    ...     mean.mark()
    >>> with mean.in_place():
    ...     layer.weight.item()
    3.0
    >>> layer.weight.item()
    4.0
    """

    def __init__(self, network: nn.Module, count: int) -> None:
        super().__init__(network)
        self.count = count
        self._kept: list[list[Tensor]] = []

    @property
    def means(self) -> list[Tensor]:
        """State for a checkpoint: the weights of each evaluation."""
        return [tensor for kept in self._kept for tensor in kept]

    def update(self, step: int) -> None:
        """Only evaluations count."""

    def mark(self) -> None:
        """Add the current weights to those of earlier evaluations."""
        self._kept = [*self._kept, [p.detach().clone() for p in self._weights]][-self.count :]

    def judged(self, score: float, better: Better) -> None:
        """Scores have no effect."""

    def _average(self) -> list[Tensor]:
        return [torch.stack(same).mean(0) for same in zip(*self._kept, strict=True)]

    def load(self, means: list[Tensor]) -> None:
        size = len(self._weights)
        device = self._weights[0].device
        parts = [means[i : i + size] for i in range(0, len(means), size)]
        self._kept = [[tensor.to(device) for tensor in part] for part in parts]


class StalledMean(_Mean):
    """The mean of the weights after every update since evaluations stalled: NT-ASGD (Merity et al. 2018, algorithm 1).

    They have stalled when a score is not better than the best before the last `patience` evaluations. Until then the
    weights are not averaged.

    >>> layer = nn.Linear(1, 1, bias=False)
    >>> mean = StalledMean(layer, patience=1)
    >>> for score, weight in ((3.0, 1.0), (2.0, 2.0), (2.5, 3.0), (2.4, 5.0), (2.4, 9.0)):
    ...     mean.judged(score, lambda a, b: b is None or a < b)
    ...     _ = nn.init.constant_(layer.weight, weight)
    ...     mean.update(step=0)
    >>> with mean.in_place():
    ...     layer.weight.item()
    7.0
    """

    def __init__(self, network: nn.Module, patience: int) -> None:
        super().__init__(network)
        self.patience = patience
        self._mean: list[Tensor] = []
        self._count = 0
        self._scores: list[float] = []

    @property
    def means(self) -> list[Tensor]:
        """State for a checkpoint: the scores, the number of averaged updates, and the average."""
        return [torch.tensor(self._scores, dtype=torch.float64), torch.tensor([self._count]), *self._mean]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """After an update: w̄ ← w̄ + (w − w̄) / n, once it has begun."""
        if self._mean:
            self._count += 1
            torch._foreach_lerp_(self._mean, [p.detach() for p in self._weights], 1 / self._count)

    def mark(self) -> None:
        """Before an evaluation: nothing to do, since updates count."""

    def judged(self, score: float, better: Better) -> None:
        """After an evaluation: begin averaging if scores have stalled."""
        before = self._scores[: -self.patience]
        best = None
        for old in before:
            best = old if better(old, best) else best
        if not self._mean and before and not better(score, best):
            self._mean = [p.detach().clone() for p in self._weights]
        self._scores.append(score)

    def _average(self) -> list[Tensor]:
        return self._mean if self._count else []

    def load(self, means: list[Tensor]) -> None:
        scores, count, *mean = means
        self._scores, self._count = scores.tolist(), int(count)
        self._mean = [tensor.to(weight.device) for tensor, weight in zip(mean, self._weights, strict=False)]
