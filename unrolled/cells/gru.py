"""The gated recurrent unit in both conventions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unrolled.cells.activations import Activation
from unrolled.cells.apart import pointwise
from unrolled.cells.base import BuiltIn, State, Step, normed_linear


@dataclass(frozen=True)
class GRUCell(BuiltIn):
    """A reset gate r and an update gate z; z keeps the old state.

        r = σ(W_r x_t + U_r h_{t-1} + b_r)
        z = σ(W_z x_t + U_z h_{t-1} + b_z)
        n = tanh(W_n x_t + b_in + r∘(U_n h_{t-1} + b_hn))       reset_after: PyTorch, cuDNN
        n = tanh(W_n x_t + b_in + U_n (r∘h_{t-1}) + b_hn)       reset before: Cho et al. 2014
        h_t = (1 - z)∘n + z∘h_{t-1}

    The rows of W, U and b are in torch's order: r, z, n. Papers that write h_t = (1 - z)∘h_{t-1} + z∘n mean the
    same network: σ(−a) = 1 − σ(a), so the sign of the z rows of W, U and b turns one into the other.
    """

    reset_after: bool = True
    gate_activation: Activation = torch.sigmoid

    gate_names: ClassVar[tuple[str, ...]] = ("r", "z", "n")

    def step(self, gates_x: Tensor, state: State) -> Step:
        (h,) = state
        r_x, z_x, n_x = gates_x.chunk(3, dim=-1)  # (B, H) each
        if self.reset_after:
            r_h, z_h, n_h = self.recurrent(h).chunk(3, dim=-1)
            r, z = pointwise(self.gate_activation, r_x + r_h), pointwise(self.gate_activation, z_x + z_h)
            n = pointwise(self.activation, n_x + r * n_h)
        else:
            seen = self.masked(h)
            r_h, z_h = self._rows(seen, slice(None, 2 * self.hidden_size)).chunk(2, dim=-1)
            r, z = pointwise(self.gate_activation, r_x + r_h), pointwise(self.gate_activation, z_x + z_h)
            n = pointwise(self.activation, n_x + self._rows(r * seen, slice(2 * self.hidden_size, None)))
        h = (1 - z) * n + z * h
        return Step(h, (h,), (r, z, n))

    def _rows(self, h: Tensor, rows: slice) -> Tensor:
        """U h + b for some rows of U, with layer norm over these rows."""
        bias = self.bias_hh[rows] if self.bias_hh is not None else None
        gain = self.norm_hh[rows] if self.norm_hh is not None else None
        return normed_linear(h, self.weight_hh[rows], bias, gain)
