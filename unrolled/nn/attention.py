"""Attention layers: additive, dot, scaled dot and general scores, and multi-head attention."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unrolled.cells import Score
from unrolled.cells.apart import row_engine
from unrolled.cells.attending import join_heads, masked_softmax, scaled, split_heads
from unrolled.errors import UserError
from unrolled.nn.checks import check_choice, check_probability, check_sizes
from unrolled.nn.linear import Linear, linear

SCORES = ("additive", "dot", "scaled", "general")


class Attention(nn.Module):
    """Attention of a query to a memory: scores, softmax over real positions, weighted sum.

        additive   e_j = vᵀ tanh(W q + U k_j + b)      `size` is the width of the sum; Bahdanau et al. 2015
        dot        e_j = qᵀ k_j                        query and keys of one size
        scaled     e_j = qᵀ k_j / √size                the same, for wide ones (Vaswani et al. 2017)
        general    e_j = qᵀ W k_j                      Luong et al. 2015
        α = softmax(e),  context = Σ_j α_j v_j

    `project` turns a memory into keys, once for all queries.

    >>> attention = Attention("additive", query_size=4, key_size=6, size=5)
    >>> memory, mask = torch.randn(2, 3, 6), torch.tensor([[True, True, True], [True, False, False]])
    >>> keys = attention.project(memory)
    >>> context, weights = attention(torch.randn(2, 4), keys, memory, mask)
    >>> context.shape, weights[1].tolist()
    (torch.Size([2, 6]), [1.0, 0.0, 0.0])
    """

    def __init__(self, kind: str, query_size: int, key_size: int, size: int | None = None) -> None:
        super().__init__()
        self.kind = check_choice("attention score", kind, SCORES)
        size = query_size if size is None else size
        check_sizes(query_size=query_size, key_size=key_size, size=size)
        if kind in ("dot", "scaled") and query_size != key_size:
            raise UserError(
                f"A {kind} score multiplies query and key: query_size={query_size}, key_size={key_size}.",
                "Use equal sizes, or the score 'general' or 'additive', which take any.",
            )
        self.query_size, self.key_size = query_size, key_size
        self.size = {"additive": size, "general": query_size}.get(kind, key_size)  # of a projected key
        if kind == "additive":
            self.query = Linear(query_size, size, bias=False)  # W
            self.key = Linear(key_size, size)  # U, b
            self.vector = nn.Parameter(torch.empty(size))  # v
            nn.init.uniform_(self.vector, -1 / math.sqrt(size), 1 / math.sqrt(size))
        elif kind == "general":
            self.key = Linear(key_size, query_size, bias=False)  # W

    def project(self, memory: Tensor) -> Tensor:
        """memory (B, S, K) → keys (B, S, A): U k + b, W k, or the memory itself."""
        if self.kind in ("dot", "scaled"):
            return memory
        keys: Tensor = self.key(memory)
        return keys

    def score(self) -> Score:
        """The score of projected keys, for a decoder's step."""
        if self.kind == "additive":
            return Score(weight_query=self.query.weight, vector=self.vector)
        return Score(scale=scaled(self.key_size) if self.kind == "scaled" else 1.0)

    def forward(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """query (B, Q) or (B, T, Q), keys (B, S, A) from `project`, values (B, S, C) → context and weights.

        `mask` (B, S) is True where the memory is real. Weights sum to one over real positions; without any, weights and
        context are zero. The padding may hold any values.
        """
        if mask is not None:
            keys, values = (torch.where(mask[..., None], part, 0) for part in (keys, values))
        return self.score().attend(query, keys, values, mask)

    def extra_repr(self) -> str:
        return f"{self.kind!r}, query_size={self.query_size}, key_size={self.key_size}, size={self.size}"


class MultiHeadAttention(nn.Module):
    """Several heads of scaled dot attention, each with its own projection of queries, keys and values.

        head_n = softmax(Q_n K_nᵀ / √d) V_n,  output = W_o [head_1; …; head_N] + b_o          (Vaswani et al. 2017)

    Parameters and results are torch.nn.MultiheadAttention's (batch first, kdim = vdim = `key_size`): a state_dict of
    one loads into the other. `project` returns keys and values, so that they can be cached.

    >>> attention = MultiHeadAttention(8, num_heads=2)
    >>> x = torch.randn(3, 5, 8)
    >>> keys, values = attention.project(x)
    >>> attention(x, keys, values, causal=True).shape
    torch.Size([3, 5, 8])
    """

    in_proj_weight: Tensor | None
    in_proj_bias: Tensor | None
    q_proj_weight: Tensor | None
    k_proj_weight: Tensor | None
    v_proj_weight: Tensor | None

    def __init__(
        self, size: int, num_heads: int, dropout: float = 0.0, bias: bool = True, key_size: int | None = None
    ) -> None:
        super().__init__()
        key_size = size if key_size is None else key_size
        check_sizes(size=size, num_heads=num_heads, key_size=key_size)
        if size % num_heads:
            lower, upper = size // num_heads * num_heads, (size // num_heads + 1) * num_heads
            fix = f"Use {lower} or {upper}." if lower else f"Use {upper}."
            raise UserError(f"size={size} is not divisible by num_heads={num_heads}.", fix)
        self.size, self.num_heads, self.key_size = size, num_heads, key_size
        self.dropout = check_probability("dropout", dropout)
        self.out_proj = Linear(size, size, bias=bias)
        if key_size == size:
            self.in_proj_weight = nn.Parameter(torch.empty(3 * size, size))
            for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
                self.register_parameter(name, None)
        else:
            self.register_parameter("in_proj_weight", None)
            self.q_proj_weight = nn.Parameter(torch.empty(size, size))
            self.k_proj_weight = nn.Parameter(torch.empty(size, key_size))
            self.v_proj_weight = nn.Parameter(torch.empty(size, key_size))
        self.in_proj_bias = nn.Parameter(torch.empty(3 * size)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot-uniform projections and zero biases, as in torch."""
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            if (weight := getattr(self, name)) is not None:
                nn.init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            nn.init.zeros_(self.in_proj_bias)
            nn.init.zeros_(self.out_proj.bias)

    def _projection(self, which: int) -> tuple[Tensor, Tensor | None]:
        """Weight and bias of queries (0), keys (1) or values (2)."""
        rows = slice(which * self.size, (which + 1) * self.size)
        weight = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)[which]
        if weight is None:
            assert self.in_proj_weight is not None
            weight = self.in_proj_weight[rows]
        return weight, None if self.in_proj_bias is None else self.in_proj_bias[rows]

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """memory (B, S, K) → keys and values, (B, N, S, d) each."""
        if self.in_proj_weight is not None:  # one product for both
            bias = None if self.in_proj_bias is None else self.in_proj_bias[self.size :]
            both = linear(memory, self.in_proj_weight[self.size :], bias)
            keys, values = both.chunk(2, dim=-1)
        else:
            keys, values = (linear(memory, *self._projection(which)) for which in (1, 2))
        return split_heads(keys, self.num_heads), split_heads(values, self.num_heads)

    def forward(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        *,
        full: bool = False,
    ) -> Tensor:
        """query (B, T, E), keys and values from `project` → (B, T, E), on torch's fused attention.

        `mask` (B, S) or (B, T, S) is True at visible positions; a query without any gets zeros before the output's
        projection, unless `full` says that there is none, which is not checked. With `causal` the last query sees all
        positions, the one before it all but the last, and so on: the same for a whole sequence and for one that
        continues cached keys.
        """
        return self.attend(
            split_heads(linear(query, *self._projection(0)), self.num_heads), keys, values, mask, causal, full=full
        )

    def project_all(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x (B, T, E) → queries, keys and values, (B, N, T, d) each, for self-attention."""
        if self.in_proj_weight is None:
            raise UserError(
                f"Keys of size {self.key_size} are not made from queries of size {self.size}.", "Use `project`."
            )
        query, keys, values = linear(x, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=-1)
        heads = self.num_heads
        return split_heads(query, heads), split_heads(keys, heads), split_heads(values, heads)

    def attend(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        *,
        full: bool = False,
    ) -> Tensor:
        """`forward` of a projected query (B, N, T, d)."""
        if (rows := row_engine()) is not None and rows.fits(query, keys, values):
            found: Tensor = self.out_proj(rows.attention(query, keys, values, mask, causal)[0])
            return found
        steps, positions = query.shape[2], keys.shape[2]
        dropout = self.dropout if self.training else 0.0
        output: Tensor
        if causal and mask is None and steps == positions:
            seen = F.scaled_dot_product_attention(query, keys, values, None, dropout, is_causal=True)
            output = self.out_proj(join_heads(seen))
            return output
        allowed = _allowed(mask, causal, steps, positions, query.device)
        empty = None if full or mask is None or allowed is None else ~allowed.any(dim=-1, keepdim=True)
        if empty is not None and allowed is not None:
            allowed = allowed | empty
        seen = F.scaled_dot_product_attention(query, keys, values, allowed, dropout)
        if empty is not None:
            seen = seen.masked_fill(empty, 0.0)
        output = self.out_proj(join_heads(seen))
        return output

    def visible(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None, causal: bool = False
    ) -> tuple[Tensor, Tensor]:
        """`forward` and each head's weights (B, N, T, S): not fused, without dropout."""
        query = split_heads(linear(query, *self._projection(0)), self.num_heads)
        if (rows := row_engine()) is not None and rows.fits(query, keys, values):
            seen, shown = rows.attention(query, keys, values, mask, causal, show=True)
            assert shown is not None
            return self.out_proj(seen), shown
        allowed = _allowed(mask, causal, query.shape[2], keys.shape[2], query.device)
        weights = masked_softmax(query @ keys.mT * scaled(query.shape[-1]), allowed)
        return self.out_proj(join_heads(weights @ values)), weights

    def score(self) -> Score:
        """The score of projected keys and values, for a decoder's step."""
        weight, bias = self._projection(0)
        scale = scaled(self.size // self.num_heads)
        out = self.out_proj
        return Score(weight, bias, None, scale, self.num_heads, out.weight, out.bias)

    def extra_repr(self) -> str:
        return f"size={self.size}, num_heads={self.num_heads}"


def _allowed(mask: Tensor | None, causal: bool, steps: int, positions: int, device: torch.device) -> Tensor | None:
    """The mask of positions for each query, (B or 1, 1, T or 1, S); None is all."""
    if mask is not None:
        mask = mask[:, None, None] if mask.dim() == 2 else mask[:, None]
    if not causal or steps == 1:
        return mask
    last = torch.arange(steps, device=device)[:, None] + (positions - steps)
    past = torch.arange(positions, device=device) <= last  # (T, S)
    return past[None, None] if mask is None else mask & past
