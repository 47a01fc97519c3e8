"""A running mean of the weights: smoother than the last ones, and often better (Polyak & Juditsky 1992)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


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

    @torch.no_grad()
    def update(self, step: int) -> None:
        """After update number `step`."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self.means, [p.detach() for p in self._weights], 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The network has the mean weights, until the block ends."""
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

    @torch.no_grad()
    def load(self, means: list[Tensor]) -> None:
        for mean, stored in zip(self.means, means, strict=True):
            mean.copy_(stored)
