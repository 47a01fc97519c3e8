"""The Transformer: layers of attention and feed-forward networks, whole sequences or one step at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unrolled.cells import Activation
from unrolled.cells import activation as activation_of
from unrolled.cells.apart import mean, pointwise
from unrolled.errors import UserError
from unrolled.nn.attention import MultiHeadAttention
from unrolled.nn.checks import check_probability, check_sizes
from unrolled.nn.linear import Linear
from unrolled.nn.relu import compiled_well
from unrolled.nn.transformer_cache import FixedKeys, FixedState, Kept, entered, visible_steps
from unrolled.nn.transformer_step import has_kernels, quick_step


class _Pass(NamedTuple):
    """The results of one layer: its output, its keys and values so far, and its weights."""

    output: Tensor  # (B, T, D)
    kept: Kept
    own: Tensor | None  # (B, N, T, T), if requested
    cross: Tensor | None  # (B, N, T, S)


class TransformerLayer(nn.Module):
    """Self-attention, attention to a memory if `cross`, and a feed-forward network, each with residual and norm.

        norm_first=False:  x ← LN(x + sublayer(x))         (Vaswani et al. 2017)
        norm_first=True:   x ← x + sublayer(LN(x))         trains without a warm-up (Xiong et al. 2020)
        feed-forward:      W_2 φ(W_1 x + b_1) + b_2

    Parameters are named as in torch.nn.TransformerEncoderLayer and, with `cross`, TransformerDecoderLayer.
    """

    def __init__(
        self,
        size: int,
        num_heads: int,
        feedforward_size: int | None = None,
        dropout: float = 0.1,
        norm_first: bool = True,
        activation: str | Activation = "relu",
        cross: bool = False,
    ) -> None:
        super().__init__()
        wide = 4 * size if feedforward_size is None else feedforward_size
        check_sizes(size=size, num_heads=num_heads, feedforward_size=wide)
        self.dropout, self.norm_first = check_probability("dropout", dropout), norm_first
        self.activation = activation_of(activation)
        self.self_attn = MultiHeadAttention(size, num_heads, dropout)
        if cross:
            self.multihead_attn = MultiHeadAttention(size, num_heads, dropout)
        self.linear1, self.linear2 = Linear(size, wide), Linear(wide, size)
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        if cross:
            self.norm3 = nn.LayerNorm(size)
        self.cross = cross
        for matrix in (self.linear1.weight, self.linear2.weight):
            nn.init.xavier_uniform_(matrix)

    def run(
        self,
        x: Tensor,
        mask: Tensor | None,
        causal: bool,
        past: Kept | FixedKeys | None = None,
        memory: Kept | None = None,
        memory_mask: Tensor | None = None,
        visible: bool = False,
    ) -> _Pass:
        """x (B, T, D) through the layer; `past` are the keys and values of the steps before x.

        With `FixedKeys` x is one step, and every memory has a position.
        """
        own = cross = None
        kept: Kept | None = None

        def itself(x: Tensor) -> Tensor:
            nonlocal own, kept
            query, keys, values = self.self_attn.project_all(x)  # one product for all three
            if isinstance(past, FixedKeys):
                kept = past.keys, past.values
                return past.attend(self.self_attn, query, keys, values)
            if past is not None:
                keys, values = torch.cat([past[0], keys], dim=2), torch.cat([past[1], values], dim=2)
            kept = keys, values
            if not visible:
                return self.self_attn.attend(query, keys, values, mask, causal)
            x, own = self.self_attn.visible(x, keys, values, mask, causal)
            return x

        def to_memory(x: Tensor) -> Tensor:
            nonlocal cross
            assert memory is not None
            rows = x.reshape(memory[0].shape[0], -1, x.shape[-1])  # all hypotheses of a memory in one batch row
            if visible:
                rows, cross = self.multihead_attn.visible(rows, *memory, memory_mask)
            else:
                rows = self.multihead_attn(rows, *memory, memory_mask, full=isinstance(past, FixedKeys))
            return rows.view_as(x)

        x = self._residual(x, itself, self.norm1)
        if self.cross:
            x = self._residual(x, to_memory, self.norm2)
        x = self._residual(x, self._feed_forward, self.norm3 if self.cross else self.norm2)
        assert kept is not None
        return _Pass(x, kept, own, cross)

    def _residual(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], norm: nn.LayerNorm) -> Tensor:
        seen: Tensor = sublayer(norm(x) if self.norm_first else x)
        if self.training:
            seen = F.dropout(seen, self.dropout)
        together: Tensor = x + seen if self.norm_first else norm(x + seen)
        return together

    def _feed_forward(self, x: Tensor) -> Tensor:
        hidden = pointwise(partial(compiled_well, self.activation), self.linear1(x))
        if self.training:
            hidden = F.dropout(hidden, self.dropout)
        output: Tensor = self.linear2(hidden)
        return output


class TransformerState(NamedTuple):
    """A stack between two steps; every tensor has the batch at dimension 0."""

    past: tuple[Kept, ...]  # of each layer, the steps so far
    memory: tuple[Kept, ...] = ()  # of each layer that looks at a memory
    memory_mask: Tensor | None = None  # (B, S)

    @property
    def length(self) -> int:
        """The number of steps so far."""
        return self.past[0][0].shape[2]


class TransformerStep(NamedTuple):
    """The output of one step (B, D), or of some (B, T, D), and the state after them."""

    output: Tensor
    state: TransformerState


class _Stack(nn.Module):
    """The base of encoder and decoder: their layers, and the norm after the last one."""

    norm: nn.LayerNorm | None
    cross: ClassVar[bool] = False

    def __init__(
        self,
        size: int,
        num_heads: int,
        num_layers: int,
        feedforward_size: int | None = None,
        dropout: float = 0.1,
        norm_first: bool = True,
        activation: str | Activation = "relu",
        final_norm: bool | None = None,
    ) -> None:
        super().__init__()
        check_sizes(num_layers=num_layers)
        self.size, self.num_layers = size, num_layers
        self.layers = nn.ModuleList(
            TransformerLayer(size, num_heads, feedforward_size, dropout, norm_first, activation, self.cross)
            for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(size) if (norm_first if final_norm is None else final_norm) else None

    def _each(self) -> list[TransformerLayer]:
        return cast(list[TransformerLayer], list(self.layers))

    def _check(self, x: Tensor, meaning: str) -> None:
        if x.dim() != meaning.count(",") + 1 or x.shape[-1] != self.size:
            raise UserError(f"The input has shape {tuple(x.shape)}.", f"Expected {meaning} with size {self.size}.")

    def _close(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = x if self.norm is None else self.norm(x)
        return x if mask is None else torch.where(mask[..., None], x, 0)

    def _empty_past(self, batch: int) -> tuple[Kept, ...]:
        layer = self._each()[0].self_attn
        empty = layer.out_proj.weight.new_zeros(batch, layer.num_heads, 0, layer.size // layer.num_heads)
        return ((empty, empty),) * self.num_layers

    def extend(self, x: Tensor, state: TransformerState, mask: Tensor | None = None) -> TransformerStep:
        """Several more steps at once: x (B, T, D) → outputs (B, T, D).

        `mask` (B, steps so far + T) is True where a step is real, past ones included; outputs of other steps are
        undefined.
        """
        self._check(x, "(batch, time, size)")
        kept, _ = self._continue(x, state, visible=False, mask=mask)
        return kept

    def step(self, x: Tensor, state: TransformerState) -> TransformerStep:
        """One more step: x (B, D) → output (B, D)."""
        self._check(x, "(batch, size)")
        (output, state), _ = self._continue(x[:, None], state, visible=False)
        return TransformerStep(output.squeeze(1), state)

    def fixed_start(self, batch: int, width: int, length: int, dtype: torch.dtype | None = None) -> FixedState:
        """The state before the first of at most `length` steps, a row for each of `batch` inputs, for `fixed_step`."""
        layer = self._each()[0].self_attn
        weight, size = layer.out_proj.weight, layer.size // layer.num_heads
        shape = (batch, layer.num_heads, width, length, size)
        kept = tuple((weight.new_zeros(shape, dtype=dtype), weight.new_zeros(shape, dtype=dtype)) for _ in self._each())
        position = torch.zeros(batch, dtype=torch.int64, device=weight.device)
        return FixedState(position, position.new_full((batch, length), -1), kept)

    def fixed_step(
        self, x: Tensor, state: FixedState, visible: bool = False
    ) -> tuple[Tensor, FixedState, Tensor | None]:
        """One more step with keys at fixed places: x (B·W, D) → output (B·W, D), the state, and its weights (B·W, S).

        The weights, if `visible`, are the mean over the last layer's heads.
        """
        state = entered(state)
        if not visible and has_kernels(x, state, self._each(), self.norm):
            output = quick_step(x, state, self._each(), self.norm)
            return output, state._replace(position=state.position + 1), None
        x, cross, mask = x[:, None], None, visible_steps(state)
        for depth, layer in enumerate(self._each()):
            memory = state.memory[depth] if state.memory else None
            past = FixedKeys(*state.kept[depth], state.position, mask)
            x, _, _, cross = layer.run(x, None, False, past, memory, state.memory_mask, visible)
        weights = None if cross is None else mean(cross, 1).flatten(0, 1)
        return self._close(x, None).squeeze(1), state._replace(position=state.position + 1), weights

    def _continue(
        self, x: Tensor, state: TransformerState, visible: bool, mask: Tensor | None = None
    ) -> tuple[TransformerStep, list[Tensor | None]]:
        past, cross = [], []
        for depth, layer in enumerate(self._each()):
            memory = state.memory[depth] if state.memory else None
            x, kept, _, seen = layer.run(x, mask, True, state.past[depth], memory, state.memory_mask, visible)
            past.append(kept)
            cross.append(seen)
        return TransformerStep(self._close(x, None), state._replace(past=tuple(past))), cross


class TransformerEncoder(_Stack):
    """A stack of self-attention layers; with `causal` each step attends to past steps only, and it can be streamed.

    By default `feedforward_size` is 4·size and `final_norm` equals `norm_first`. Parameters are named as in
    torch.nn.TransformerEncoder: a state_dict of one loads into the other. Add position codes to the input
    (`unrolled.nn.positions`).

    >>> encoder = TransformerEncoder(8, num_heads=2, num_layers=3).eval()
    >>> mask = torch.arange(5) < torch.tensor([[5], [3]])
    >>> encoder(torch.randn(2, 5, 8), mask).shape
    torch.Size([2, 5, 8])
    """

    def __init__(
        self,
        size: int,
        num_heads: int,
        num_layers: int,
        feedforward_size: int | None = None,
        dropout: float = 0.1,
        norm_first: bool = True,
        activation: str | Activation = "relu",
        final_norm: bool | None = None,
        causal: bool = False,
    ) -> None:
        super().__init__(size, num_heads, num_layers, feedforward_size, dropout, norm_first, activation, final_norm)
        self.causal = causal

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x (B, T, D), mask (B, T) True where real → (B, T, D), zero in the padding."""
        return self._run(x, mask, visible=False)[0]

    def visible(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
        """`forward` without the fused attention, and each layer's weights (B, N, T, T)."""
        output, weights = self._run(x, mask, visible=True)
        return output, [w for w in weights if w is not None]

    def _run(self, x: Tensor, mask: Tensor | None, visible: bool) -> tuple[Tensor, list[Tensor | None]]:
        self._check(x, "(batch, time, size)")
        x = x if mask is None else torch.where(mask[..., None], x, 0)  # a NaN in the padding times zero is a NaN
        weights = []
        for layer in self._each():
            x, _, own, _ = layer.run(x, mask, self.causal, visible=visible)
            weights.append(own)
        return self._close(x, mask), weights

    def start(self, batch: int) -> TransformerState:
        """The state before the first step of `batch` streams."""
        if not self.causal:
            raise UserError(
                "This encoder sees the whole sequence at every step, and cannot go step by step.",
                "Use causal=True for one that can.",
            )
        return TransformerState(self._empty_past(batch))


class DecoderTrace(NamedTuple):
    """A decoder's output (B, T, D) and the weights of each layer."""

    output: Tensor
    own: list[Tensor]  # (B, N, T, T)
    cross: list[Tensor]  # (B, N, T, S)


class TransformerDecoder(_Stack):
    """A stack of layers that attend to past steps and to a memory. Options are those of `TransformerEncoder`.

    `start` projects keys and values of the memory once, and those of past steps are cached: repeated `step`s give the
    result of `forward`. Parameters are named as in torch.nn.TransformerDecoder.

    >>> decoder = TransformerDecoder(8, num_heads=2, num_layers=3).eval()
    >>> memory, x = torch.randn(2, 5, 8), torch.randn(2, 4, 8)
    >>> output = decoder(x, memory)
    >>> state = decoder.start(memory)
    >>> first, state = decoder.step(x[:, 0], state)
    >>> bool(torch.allclose(first, output[:, 0], atol=1e-5)), state.length
    (True, 1)
    """

    cross = True

    def forward(
        self, x: Tensor, memory: Tensor, mask: Tensor | None = None, memory_mask: Tensor | None = None
    ) -> Tensor:
        """x (B, T, D), memory (B, S, D), masks (B, T) and (B, S) True where real → (B, T, D), zero in the padding."""
        return self._run(x, memory, mask, memory_mask, visible=False).output

    def visible(
        self, x: Tensor, memory: Tensor, mask: Tensor | None = None, memory_mask: Tensor | None = None
    ) -> DecoderTrace:
        """`forward` without the fused attention, and each layer's weights."""
        return self._run(x, memory, mask, memory_mask, visible=True)

    def _run(
        self, x: Tensor, memory: Tensor, mask: Tensor | None, memory_mask: Tensor | None, visible: bool
    ) -> DecoderTrace:
        self._check(x, "(batch, time, size)")
        x = x if mask is None else torch.where(mask[..., None], x, 0)
        own, cross = [], []
        for layer, known in zip(self._each(), self._memories(memory, memory_mask), strict=True):
            x, _, own_weights, weights = layer.run(x, mask, True, None, known, memory_mask, visible)
            own.append(own_weights)
            cross.append(weights)
        shown = ([w for w in found if w is not None] for found in (own, cross))
        return DecoderTrace(self._close(x, mask), *shown)

    def _memories(self, memory: Tensor, mask: Tensor | None) -> tuple[Kept, ...]:
        self._check(memory, "(batch, positions, size)")
        memory = memory if mask is None else torch.where(mask[..., None], memory, 0)
        return tuple(layer.multihead_attn.project(memory) for layer in self._each())

    def start(self, memory: Tensor, memory_mask: Tensor | None = None) -> TransformerState:
        """The state before the first step: memory (B, S, D), mask (B, S) True where real."""
        return TransformerState(self._empty_past(memory.shape[0]), self._memories(memory, memory_mask), memory_mask)

    def step_visible(self, x: Tensor, state: TransformerState) -> tuple[TransformerStep, Tensor]:
        """`step` without the fused attention, and its weights (B, S), the mean over the last layer's heads."""
        self._check(x, "(batch, size)")
        (output, state), cross = self._continue(x[:, None], state, visible=True)
        assert cross[-1] is not None
        return TransformerStep(output.squeeze(1), state), mean(cross[-1], 1).flatten(0, 1)
