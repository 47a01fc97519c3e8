"""The job of an engine for decoders with attention, and its results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from unrolled.cells import AttentionCell, State
from unrolled.kernels.lengths import real_steps


class Attended(NamedTuple):
    """The results of all steps. Past a row's length they are zero, and the state stays."""

    output: Tensor  # (B, T, O)
    context: Tensor  # (B, T, C)
    weights: Tensor  # (B, T, S)
    state: State  # (B, size) each, after the last step
    chosen: Tensor | None = None  # (B, T), position of hard attention; -1 for its expectation


@dataclass(frozen=True)
class AttentionJob:
    """One decoder with attention over one batch."""

    cell: AttentionCell
    gates_x: Tensor  # (B, T, G)
    keys: Tensor  # (B, S, A), projected
    values: Tensor  # (B, S, C)
    mask: Tensor | None  # (B, S) bool, True where real
    state: State  # (B, size) each
    lengths: Tensor | None = None  # (B,) int64 on the input's device
    feed_mask: Tensor | None = None  # (B, T, F), dropout of the cell's second input
    mix_mask: Tensor | None = None  # (B, T, C + H), dropout of [c; h] before W_c
    noise: Tensor | None = None  # (B, T, S), Gumbel noise of hard attention

    @property
    def x(self) -> Tensor:
        """The input, whose device an engine is chosen for."""
        return self.gates_x

    @property
    def active(self) -> Tensor | None:
        """(B, T), True where a step is real; None if all are."""
        return None if self.lengths is None else real_steps(self.lengths, self.gates_x.shape[1])
