"""Attention, and the two decoder steps with attention, in plain torch below their equations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from unrolled.cells.apart import linear, mean, pointwise, product, softmax
from unrolled.cells.base import CellAround, State


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax over the last dimension where `mask` is True, zero elsewhere; a row without any is all zeros.

    >>> masked_softmax(torch.zeros(2, 3), torch.tensor([[True, True, False], [False, False, False]]))
    tensor([[0.5000, 0.5000, 0.0000],
            [0.0000, 0.0000, 0.0000]])
    """
    if mask is None:
        return softmax(scores)
    scores = scores.masked_fill(~mask, -torch.inf)
    scores = scores.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)  # an empty row must not become NaN
    return torch.where(mask, softmax(scores), 0.0)


@dataclass(frozen=True)
class Score:
    """The score of each key for a query q, and the resulting context; built per call from a layer's parameters.

        additive   e_j = vᵀ tanh(W q + k_j)                 k_j = U m_j + b (Bahdanau, Cho & Bengio 2015)
        dot        e_j = scale·(W q + b)ᵀ k_j               without W: scale·qᵀ k_j (Luong, Pham & Manning 2015)
        α = softmax(e) over real positions,  c = Σ_j α_j v_j

    Keys are projected once for all queries, so `general`, qᵀ W m_j, is dot with k_j = W m_j. With `heads` > 1 query,
    keys and values are split into heads; their concatenated contexts go through `weight_out` (Vaswani et al. 2017),
    and the weights returned are the mean over heads.
    """

    weight_query: Tensor | None = None  # (A, Q); None: the query as it is
    bias_query: Tensor | None = None  # (A,)
    vector: Tensor | None = None  # (A,), v of an additive score
    scale: float = 1.0  # of a dot score
    heads: int = 1
    weight_out: Tensor | None = None  # (O, C)
    bias_out: Tensor | None = None  # (O,)

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """query (B, Q) or (B, T, Q), keys (B, S, A), values (B, S, C) → context (B, …, C), weights (B, …, S).

        `mask` (B, S) is True at real positions; keys and values must be finite at all. A query of (B·W, Q) holds W
        consecutive queries for each memory, such as the hypotheses of a search; the results have the same order.
        """
        if query.dim() == 2:
            context, weights = self.attend(query.view(keys.shape[0], -1, query.shape[-1]), keys, values, mask)
            return context.flatten(0, 1), weights.flatten(0, 1)
        if self.weight_query is not None:
            query = linear(query, self.weight_query, self.bias_query)
        context, weights = self.look(query, keys, values, mask)
        if self.weight_out is not None:
            context = linear(context, self.weight_out, self.bias_out)
        return context, weights

    def look(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """`attend` without its projections: query (B, T, A) → contexts (B, T, C), weights (B, T, S)."""
        if self.heads == 1:
            weights = masked_softmax(self._scores(query, keys), None if mask is None else mask[:, None])
            return product(weights, values), weights
        query, keys, values = (split_heads(part, self.heads) for part in (query, keys, values))
        of_heads = masked_softmax(self._scores(query, keys), None if mask is None else mask[:, None, None])
        return join_heads(product(of_heads, values)), mean(of_heads, 1)

    def _scores(self, query: Tensor, keys: Tensor) -> Tensor:
        if self.vector is None:
            return product(query, keys.mT) * self.scale  # (…, T, S)
        return linear(pointwise(torch.tanh, query[..., None, :] + keys[..., None, :, :]), self.vector[None])[..., 0]


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, T, N·d) → (B, N, T, d)."""
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """(B, N, T, d) → (B, T, N·d)."""
    return x.transpose(1, 2).flatten(2)


def scaled(size: int) -> float:
    """1/√size: keeps the variance of a dot product of that many terms at one."""
    return 1 / math.sqrt(size)


class AttentionStep(NamedTuple):
    """The results of one step of a decoder with attention."""

    output: Tensor  # (B, O)
    context: Tensor  # (B, C)
    weights: Tensor  # (B, S)
    state: State


@dataclass(frozen=True)
class BahdanauCell(CellAround):
    """Attention before the step: the context is part of the input (Bahdanau, Cho & Bengio 2015).

        c_i, α_i = attend(s_{i-1})
        s_i = cell(y_{i-1}, s_{i-1}, c_i)               c_i enters as W_feed c_i, beside W y_{i-1}
        output_i = s_i

    The state is the cell's.
    """

    score: Score
    weight_feed: Tensor  # (G, C)

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
        """gates_x (B, G) is the cell's projection of y_{i-1}; `feed_mask` (B, C) is dropout of the context."""
        context, weights = self.look(state[0], keys, values, mask, noise)
        fed = context if feed_mask is None else context * feed_mask
        output, new = self.cell.step(gates_x + linear(fed, self.weight_feed), state)[:2]
        return AttentionStep(output, context, weights, new)

    def look(
        self, hidden: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, noise: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The context (B, C) and weights (B, S) of s_{i-1}."""
        return self.score.attend(hidden, keys, values, mask)


@dataclass(frozen=True)
class LuongCell(CellAround):
    """Attention after the step; its result is an input of the next step (Luong, Pham & Manning 2015).

        h_i = cell(y_{i-1}, h_{i-1}, h̃_{i-1})           h̃_{i-1} enters as W_feed h̃_{i-1}: input feeding
        c_i, α_i = attend(h_i)
        h̃_i = tanh(W_c [c_i; h_i] + b_c)
        output_i = h̃_i

    The state is the cell's and, last, h̃, named "fed".
    """

    score: Score
    weight_feed: Tensor  # (G, F)
    weight_mix: Tensor  # (F, C + H), W_c
    bias_mix: Tensor | None = None  # (F,)

    @property
    def state_names(self) -> tuple[str, ...]:
        return (*self.cell.state_names, "fed")

    @property
    def state_sizes(self) -> tuple[int, ...]:
        return (*self.cell.state_sizes, self.weight_mix.shape[0])

    def step(
        self,
        gates_x: Tensor,
        state: State,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None,
        feed_mask: Tensor | None = None,
        mix_mask: Tensor | None = None,
    ) -> AttentionStep:
        """gates_x (B, G) is the cell's projection of y_{i-1}; dropout: `feed_mask` (B, F), `mix_mask` (B, C + H)."""
        *own, fed = state
        fed = fed if feed_mask is None else fed * feed_mask
        hidden, new = self.cell.step(gates_x + linear(fed, self.weight_feed), tuple(own))[:2]
        context, weights = self.score.attend(hidden, keys, values, mask)
        both = torch.cat([context, hidden], dim=-1)  # (B, C + H)
        both = both if mix_mask is None else both * mix_mask
        output = pointwise(torch.tanh, linear(both, self.weight_mix, self.bias_mix))
        return AttentionStep(output, context, weights, (*new, output))
