"""The decoder step for pictures: gated attention, soft or hard."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unrolled.cells.apart import linear, pointwise
from unrolled.cells.attending import BahdanauCell, LuongCell


@dataclass(frozen=True)
class VisualCell(BahdanauCell):
    """Attention before the step, with a gate on the context (Xu et al. 2015).

        α_i = softmax(score(s_{i-1}, ·))
        soft:  c_i = Σ_j α_ij v_j              hard:  c_i = v_j, with j sampled from α_i
        β_i = σ(w_β·s_{i-1} + b_β)
        s_i = cell(y_{i-1}, s_{i-1}, β_i c_i)           β_i c_i enters as W_feed β_i c_i
        output_i = s_i, context_i = β_i c_i

    Hard attention samples with Gumbel `noise` (B, S); without noise it takes the likeliest position. Rows in `expected`
    get the soft context, which is the mean of the samples. The state is the cell's.
    """

    weight_gate: Tensor  # (1, H), w_β
    bias_gate: Tensor  # (1,)
    hard: bool = False
    expected: Tensor | None = None  # (B,) bool

    def look(
        self, hidden: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, noise: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The gated context (B, C) and weights (B, S) of s_{i-1}."""
        context, weights = super().look(hidden, keys, values, mask, noise)
        if self.hard:
            places = drawn_place(weights, noise).view(values.shape[0], weights.shape[0] // max(1, values.shape[0]))
            drawn = values.gather(1, places[..., None].expand(-1, -1, values.shape[2]))  # W queries for each memory
            drawn = drawn.flatten(0, 1)  # (B, C)
            context = drawn if self.expected is None else torch.where(self.expected[:, None], context, drawn)
        return pointwise(torch.sigmoid, linear(hidden, self.weight_gate, self.bias_gate)) * context, weights


AttentionCell = BahdanauCell | LuongCell | VisualCell


def drawn_place(weights: Tensor, noise: Tensor | None) -> Tensor:
    """The position of hard attention, (…): argmax_j log α_j + g_j, a sample from α if g is Gumbel noise.

    >>> drawn_place(torch.tensor([[0.2, 0.7, 0.1]]), None)
    tensor([1])
    """
    return (weights if noise is None else weights.log() + noise).argmax(dim=-1)
