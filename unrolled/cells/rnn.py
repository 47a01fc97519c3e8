"""The vanilla recurrent cell."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from unrolled.cells.apart import pointwise
from unrolled.cells.base import BuiltIn, State, Step


@dataclass(frozen=True)
class RNNCell(BuiltIn):
    """h_t = φ(W x_t + U h_{t-1} + b), with φ any activation (Elman 1990)."""

    def step(self, gates_x: Tensor, state: State) -> Step:
        (h,) = state
        h = pointwise(self.activation, gates_x + self.recurrent(h))  # (B, H)
        return Step(h, (h,))
