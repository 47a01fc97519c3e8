"""Long short-term memory, with peepholes, projection and layer norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from unrolled.cells.activations import Activation
from unrolled.cells.apart import linear, pointwise
from unrolled.cells.base import BuiltIn, State, Step


@dataclass(frozen=True)
class LSTMCell(BuiltIn):
    """Gates for forgetting, input and output of the cell state c (Hochreiter & Schmidhuber 1997).

        i = σ(W_i x_t + U_i h_{t-1} + p_i∘c_{t-1} + b_i)        p: peepholes (Gers et al. 2002), if any
        f = σ(W_f x_t + U_f h_{t-1} + p_f∘c_{t-1} + b_f)
        g = tanh(W_g x_t + U_g h_{t-1} + b_g)
        c_t = f∘c_{t-1} + i∘g
        o = σ(W_o x_t + U_o h_{t-1} + p_o∘c_t + b_o)            or p_o∘c_{t-1}
        h_t = o∘tanh(c_t)                                       R (o∘tanh(c_t)) with a projection R

    The rows of W, U and b are in torch's order: i, f, g, o. With layer norm, tanh reads LN(c_t).
    """

    weight_hr: Tensor | None = None  # (P, H)
    weight_peephole: Tensor | None = None  # (3, H), rows i, f, o
    peephole_output: Literal["current", "previous"] = "current"  # which c the output gate reads
    norm_c: Tensor | None = None  # (H,) gain and shift of LN(c_t)
    norm_c_bias: Tensor | None = None
    gate_activation: Activation = torch.sigmoid
    output_activation: Activation = torch.tanh

    state_names: ClassVar[tuple[str, ...]] = ("h", "c")
    gate_names: ClassVar[tuple[str, ...]] = ("i", "f", "g", "o")

    @property
    def state_sizes(self) -> tuple[int, ...]:
        return (self.weight_hh.shape[1], self.hidden_size)

    def step(self, gates_x: Tensor, state: State) -> Step:
        h, c = state
        i, f, g, o = (gates_x + self.recurrent(h)).chunk(4, dim=-1)  # (B, H) each
        if self.weight_peephole is not None:
            p_i, p_f, p_o = self.weight_peephole
            i, f = i + p_i * c, f + p_f * c
            if self.peephole_output == "previous":
                o = o + p_o * c
        i, f, g = pointwise(self.gate_activation, i), pointwise(self.gate_activation, f), pointwise(self.activation, g)
        c = f * c + i * g
        if self.weight_peephole is not None and self.peephole_output == "current":
            o = o + p_o * c
        o = pointwise(self.gate_activation, o)
        h = o * pointwise(self.output_activation, self._normed(c))
        if self.weight_hr is not None:
            h = linear(h, self.weight_hr)  # (B, P)
        return Step(h, (h, c), (i, f, g, o))

    def _normed(self, c: Tensor) -> Tensor:
        if self.norm_c is None:
            return c
        return F.layer_norm(c, self.norm_c.shape, self.norm_c, self.norm_c_bias)
