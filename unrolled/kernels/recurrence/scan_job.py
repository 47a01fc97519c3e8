"""The job of a recurrence engine."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from unrolled.cells import AnyCell, State
from unrolled.kernels.lengths import real_steps

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
        """(B, T), True where a step is real; None if all are."""
        return None if self.lengths is None else real_steps(self.lengths, self.x.shape[1])

    def probes(self) -> State:
        """Zeros (B, T, size) that a trace adds to the states to obtain their gradients."""
        return tuple(s.new_zeros(*self.x.shape[:2], s.shape[-1]).requires_grad_() for s in self.state)

    def taken(self, like: Tensor) -> dict[str, Tensor]:
        """The share of each state that a step writes, name → (B, T, 1 or size), for a trace."""
        names, active = self.cell.state_names, self.active
        real = like.new_ones(1, 1, 1) if active is None else active[..., None].to(like.dtype)
        shares = [real * (1 - k) for k in self.keep] if self.keep is not None else [real for _ in names]
        return {name: share.expand(*self.x.shape[:2], -1) for name, share in zip(names, shares, strict=True)}
