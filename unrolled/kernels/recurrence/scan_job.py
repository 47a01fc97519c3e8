"""The job of a recurrence engine."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unrolled.cells import AnyCell, State

Keep = tuple[Tensor | float, ...]
"""Zoneout, one entry for each state: the share of the old state kept, (B, T, size) or one number for all."""


@dataclass(frozen=True)
class ScanJob:
    """One cell over one batch of sequences in one direction; all sizes already checked."""

    cell: AnyCell
    x: Tensor  # (B, T, D)
    state: State  # (B, size) each
    lengths: Tensor | None = None  # (B,) int64 on x's device
    resets: Tensor | None = None  # (B, T) bool: before step t, in the order of running, the state is reset
    reset_state: State | None = None  # (B, size) each; None is zeros
    keep: Keep | None = None
    reverse: bool = False
    fresh: bool = False  # the state is zero without a gradient: an engine can skip it

    @property
    def active(self) -> Tensor | None:
        """(B, T), True where a step is real; None when all are."""
        if self.lengths is None:
            return None
        return torch.arange(self.x.shape[1], device=self.x.device) < self.lengths[:, None]
