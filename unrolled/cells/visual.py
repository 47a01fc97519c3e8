"""The decoder step that looks at a picture: attention through a gate, soft or hard."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from unrolled.cells.attending import AttentionStep, BahdanauCell, LuongCell, Score
from unrolled.cells.base import AnyCell, State


@dataclass(frozen=True)
class VisualCell:
    """Looks before it steps, and a gate says how much of what it saw counts (Xu et al. 2015).

        α_i = softmax(score(s_{i-1}, ·))
        soft:  c_i = Σ_j α_ij v_j              hard:  c_i = v_j, with j drawn from α_i
        β_i = σ(w_β·s_{i-1} + b_β)
        s_i = cell(y_{i-1}, s_{i-1}, β_i c_i)           β_i c_i enters as W_feed β_i c_i
        output_i = s_i, context_i = β_i c_i

    A hard draw is given from outside as Gumbel noise; without noise the likeliest position is taken. Rows of `expected`
    see the soft context all the same: that is the draw's mean. The state is the cell's.
    """

    cell: AnyCell
    score: Score
    weight_feed: Tensor  # (G, C)
    weight_gate: Tensor  # (1, H), w_β
    bias_gate: Tensor  # (1,)
    hard: bool = False
    expected: Tensor | None = None  # (B,) bool

    @property
    def state_names(self) -> tuple[str, ...]:
        return self.cell.state_names

    @property
    def state_sizes(self) -> tuple[int, ...]:
        return self.cell.state_sizes

    def step(
        self,
        gates_x: Tensor,
        state: State,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None,
        feed_mask: Tensor | None = None,
        mix_mask: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> AttentionStep:
        """gates_x (B, G): the cell's projection of y_{i-1}; `feed_mask` (B, C) is dropout, `noise` (B, S) the draw."""
        context, weights = self.score.attend(state[0], keys, values, mask)
        if self.hard:
            rows = torch.arange(len(values), device=values.device)  # each for as many queries as there are of it
            rows = rows.repeat_interleave(len(weights) // max(1, len(values)))
            drawn = values[rows, drawn_place(weights, noise)]  # (B, C)
            context = drawn if self.expected is None else torch.where(self.expected[:, None], context, drawn)
        context = torch.sigmoid(F.linear(state[0], self.weight_gate, self.bias_gate)) * context
        fed = context if feed_mask is None else context * feed_mask
        output, new = self.cell.step(gates_x + F.linear(fed, self.weight_feed), state)[:2]
        return AttentionStep(output, context, weights, new)


AttentionCell = BahdanauCell | LuongCell | VisualCell


def drawn_place(weights: Tensor, noise: Tensor | None) -> Tensor:
    """The position of hard attention, (…): argmax_j log α_j + g_j, a sample from α if g is Gumbel noise.

    >>> drawn_place(torch.tensor([[0.2, 0.7, 0.1]]), None)
    tensor([1])
    """
    return (weights if noise is None else weights.log() + noise).argmax(dim=-1)
