"""The Transformer as a language model, with a window of the text and a cache of keys and values.

A window grows from zero to `context` tokens. When it is full, it restarts with its last context / 2 tokens, which are
read again: every token has at least this context, as far as the text has it, and is read at most twice. The start of a
window depends on the text alone: reading token by token, in pieces, or in a batch of longer texts gives the same
numbers.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from unrolled.errors import UserError
from unrolled.models.embedding import token_embedding
from unrolled.models.language_base import LEAST_CONTEXT, LanguageModel, LanguageModelSettings
from unrolled.models.recurrent_settings import Change, unchanged
from unrolled.models.transformer_settings import check_heads
from unrolled.nn.linear import Linear
from unrolled.nn.positions import Positions
from unrolled.nn.transformer import TransformerEncoder, TransformerState
from unrolled.nn.transformer_cache import FixedState, Kept
from unrolled.search import Shared, TokenStep
from unrolled.search.tokens.steady import GraphCache, graphs_of

Carried = tuple[Tensor, Tensor | None, tuple[Kept, ...] | None]
"""A `_Window` carried from batch to batch, as a plain tuple."""


class _Window(NamedTuple):
    """The window of each row: its last columns; those before are padding."""

    ids: Tensor  # (B, W)
    pads: Tensor | None  # (B,), columns of padding at the left; None: no row has any
    past: tuple[Kept, ...] | None  # keys and values (B, N, W, d) of each block; None: not cached

    @property
    def width(self) -> int:
        return self.ids.shape[1]

    def cut(self, columns: int) -> _Window:
        """Without the first columns."""
        past = self.past
        if past is not None:
            past = tuple((keys[:, :, columns:], values[:, :, columns:]) for keys, values in past)
        return _Window(self.ids[:, columns:], None if self.pads is None else self.pads - columns, past)


class TransformerLM(LanguageModel):
    """Embedding and positions → causal blocks → scores of the next token."""

    def __init__(self, settings: LanguageModelSettings, vocabulary_size: int, start: int) -> None:
        super().__init__()
        assert settings.context is not None
        self.start_token, self.vocabulary_size, self.context = start, vocabulary_size, settings.context
        if self.context < LEAST_CONTEXT:
            raise UserError(f"model.context={self.context} is too short for a Transformer.", "Use 2 or more.")
        width, heads = settings.hidden_size, settings.heads
        check_heads(width, heads)
        self.embedding, self.scale = token_embedding(vocabulary_size, width), math.sqrt(width)
        self.positions = Positions(settings.positions, width, self.context)
        self.dropout = nn.Dropout(settings.dropout)
        parts = (heads, settings.blocks, settings.feedforward, settings.dropout, settings.norm_first)
        self.encoder = TransformerEncoder(width, *parts, settings.activation, causal=True)
        self.scores = Linear(width, vocabulary_size)
        nn.init.zeros_(self.scores.bias)
        if settings.tied:
            self.scores.weight = self.embedding.weight

    def states(self, ids: Tensor, lengths: Tensor) -> Tensor:
        return self.features(ids, lengths=lengths)[0]

    def features(
        self, ids: Tensor, state: Carried | None = None, lengths: Tensor | None = None, resets: Tensor | None = None
    ) -> tuple[Tensor, Carried]:
        """Outputs of the last block (B, T, D), and the window after the last token."""
        window = self._entered(ids, state, resets)
        outputs, done, steps = [], 0, ids.shape[1]
        while done < steps:
            window = self._with_room(window)
            count = min(self.context - window.width, steps - done)
            real = None if lengths is None else (lengths - done).clamp(0, count)
            output, window = self._read(ids[:, done : done + count], window, real)
            outputs.append(output)
            done += count
        output = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)
        return output, (window.ids, window.pads, window.past)

    @property
    def graphs(self) -> GraphCache | None:
        """Recorded searches; none where keys are not cached."""
        return None if self._reads_again else graphs_of(self)

    def steady(self, memory: Carried | None, rows: int, width: int, steps: int) -> tuple[SteadyLM, Any] | None:
        """See `unrolled.search.tokens.steady`: keys and values have places for a whole window.

        Several hypotheses of a text need its first window: they cannot be read again alone.
        """
        if width > 1 and (memory is not None or steps > self.context):
            return None
        length = min(steps, self.context) if width > 1 else self.context
        state = self.encoder.fixed_start(rows, width, length, _precision(self.embedding.weight))
        ids = torch.zeros(rows, length, dtype=torch.int64, device=self.device)
        if memory is not None:
            window = _left(_Window(*memory))
            assert window.past is not None
            assert window.pads is not None
            ids[:, : window.width] = window.ids
            for kept, past in zip(state.kept, window.past, strict=True):
                for one, other in zip(kept, past, strict=True):
                    one[:, :, 0, : window.width] = other
            columns = torch.arange(length, device=self.device)
            state = state._replace(
                position=window.pads, ancestors=torch.where(columns < window.pads[:, None], 0, state.ancestors)
            )
        return SteadyLM(self, self.positions.table(length, self.device)), (
            state.position,
            state.ancestors,
            ids,
            Shared(state.kept),
        )

    def trace(self, ids: Tensor, change: Change = unchanged) -> tuple[Tensor, list[Tensor]]:
        """The scores, and the attention of every block (B, N, T, T); `change` is applied to the tokens' vectors."""
        if ids.shape[1] > self.context:
            raise UserError(
                f"{ids.shape[1]} tokens exceed the context of this Transformer, {self.context}.",
                "Trace a shorter text.",
            )
        x = self.positions(change(self.embedding(ids)) * self.scale)
        output, weights = self.encoder.visible(x)
        return self.scores(output), weights

    def _entered(self, ids: Tensor, state: Carried | None, resets: Tensor | None) -> _Window:
        if state is None:
            empty = None if self._reads_again else self.encoder.start(ids.shape[0]).past
            return _Window(ids[:, :0], None, empty)
        window = _Window(*state)
        if resets is None:
            return window
        if resets.dim() == 2:
            raise UserError("A Transformer cannot reset in the middle of a batch.", "Give resets of shape (B,).")
        before = torch.zeros_like(resets, dtype=torch.long) if window.pads is None else window.pads
        return window._replace(pads=torch.where(resets, window.width, before))

    @property
    def _reads_again(self) -> bool:
        """True if keys are not cached: in training, and for positions='fraction', which change with every token."""
        return self.training or self.positions.kind == "fraction"

    def _with_room(self, window: _Window) -> _Window:
        """Restart the full windows with their last half."""
        if window.width < self.context:
            return window
        half = self.context // 2
        if window.pads is None:
            return self._read_anew(window.cut(window.width - half))
        full = window.width - window.pads >= self.context  # (B,)
        pads = torch.where(full, window.width - half, window.pads)
        if bool(full.any()) and window.past is not None:
            rows = full.nonzero()[:, 0]
            fresh = self._read_anew(_Window(window.ids[rows, -half:], None, ())).past
            assert fresh is not None
            window = window._replace(past=_put(window.past, fresh, rows, half))
        return window._replace(pads=pads).cut(int(pads.min()))

    def _read_anew(self, window: _Window) -> _Window:
        """Keys and values of a window without padding, made from its tokens."""
        if window.past is None:
            return window
        x = self._vectors(window.ids, 0, None)
        past = self.encoder.extend(x, self.encoder.start(len(x))).state.past
        return window._replace(past=past)

    def _read(self, ids: Tensor, window: _Window, real: Tensor | None) -> tuple[Tensor, _Window]:
        """Outputs (B, T, D) of a piece that fits into the window; `real` (B,) are the rows' lengths in it."""
        together = torch.cat([window.ids, ids], dim=1)
        mask = None
        if window.pads is not None:
            mask = torch.arange(together.shape[1], device=ids.device) >= window.pads[:, None]
        if window.past is None:
            output, past = self._read_all(together, window, real, mask)[:, -ids.shape[1] :], None
        else:
            first = window.width if window.pads is None else window.width - window.pads
            before = TransformerState(window.past)
            output, state = self.encoder.extend(self._vectors(ids, first, None), before, mask)
            past = state.past
        after = _Window(together, window.pads, past)
        return output, after if real is None else _aligned(after, ids.shape[1] - real)

    def _read_all(self, ids: Tensor, window: _Window, real: Tensor | None, mask: Tensor | None) -> Tensor:
        """Read without cached keys: window and piece in one pass."""
        if window.pads is None and real is None:
            return self.encoder(self._vectors(ids, 0, None))  # type: ignore[no-any-return]  # torch's __call__
        pads = torch.zeros(len(ids), dtype=torch.long, device=ids.device) if window.pads is None else window.pads
        lengths = window.width - pads + (ids.shape[1] - window.width if real is None else real)
        return self.encoder(self._vectors(ids, -pads, lengths), mask)  # type: ignore[no-any-return]

    def _vectors(self, ids: Tensor, first: int | Tensor, lengths: Tensor | None) -> Tensor:
        x: Tensor = self.dropout(self.positions(self.embedding(ids) * self.scale, first, lengths))
        return x


class SteadyLM:
    """A Transformer whose steps have fixed shapes, within one window; `renew` begins the next.

    `codes` are those of its positions, unless they are weights.
    """

    def __init__(self, network: TransformerLM, codes: Tensor | None) -> None:
        self.network, self.codes, self.start, self.context = network, codes, network.start, network.context

    def step(self, tokens: Tensor, state: Any) -> TokenStep:
        position, ancestors, ids, shared = state
        network = self.network
        x = network.dropout(network.positions.step(network.embedding(tokens) * network.scale, position, self.codes))
        output, after, _ = network.encoder.fixed_step(x, FixedState(position, ancestors, shared.value))
        ids.scatter_(1, position[:, None], tokens[:, None])
        scores = network.scores(output).float().log_softmax(-1)
        return TokenStep(scores, (after.position, after.ancestors, ids, shared))

    def positions(self, state: Any) -> list[int]:
        """The number of tokens in the window of each row."""
        found: list[int] = state[0].tolist()
        return found

    def renew(self, state: Any, rows: list[int]) -> int:
        """Begin the full windows of some rows again with their last half, in place; returns its length."""
        position, ancestors, ids, shared = state
        network, half = self.network, self.context // 2
        chosen = torch.tensor(rows, device=ids.device)
        last = ids[chosen, -half:]
        past = network._read_anew(_Window(last, None, ())).past
        assert past is not None
        for kept, fresh in zip(shared.value, past, strict=True):
            for one, other in zip(kept, fresh, strict=True):
                one[chosen, :, 0, :half] = other.to(one.dtype)
        position[chosen] = half
        ancestors[chosen, half:] = -1
        ids[chosen, :half] = last
        return half


def _left(window: _Window) -> _Window:
    """The same rows with their padding on the right; `pads` are then their lengths."""
    width, device = window.width, window.ids.device
    pads = torch.zeros(len(window.ids), dtype=torch.int64, device=device) if window.pads is None else window.pads
    columns = (torch.arange(width, device=device) + pads[:, None]).clamp(max=max(0, width - 1))  # (B, W), the sources

    def moved(kept: Tensor) -> Tensor:
        return kept.gather(2, columns[:, None, :, None].expand_as(kept))

    assert window.past is not None
    past = tuple((moved(keys), moved(values)) for keys, values in window.past)
    return _Window(window.ids.gather(1, columns), width - pads, past)


def _precision(weight: Tensor) -> torch.dtype:
    """The precision of keys and values: that of matrix products."""
    kind = weight.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype


def _put(past: tuple[Kept, ...], fresh: tuple[Kept, ...], rows: Tensor, columns: int) -> tuple[Kept, ...]:
    """Replace the last columns of some rows."""

    def one(old: Tensor, new: Tensor) -> Tensor:
        kept = old.clone()
        kept[rows, :, -columns:] = new
        return kept

    return tuple((one(a, c), one(b, d)) for (a, b), (c, d) in zip(past, fresh, strict=True))


def _aligned(window: _Window, behind: Tensor) -> _Window:
    """Shift rows to the right by their padding `behind` (B,)."""
    if window.pads is None and not bool(behind.any()):
        return window  # without padding there is no mask, and attention is fused
    width, device = window.width, window.ids.device
    columns = (torch.arange(width, device=device) - behind[:, None]).clamp(min=0)  # (B, W), source columns
    pads = behind if window.pads is None else window.pads + behind

    def moved(kept: Tensor) -> Tensor:
        return kept.gather(2, columns[:, None, :, None].expand_as(kept))

    past = None if window.past is None else tuple((moved(keys), moved(values)) for keys, values in window.past)
    aligned = _Window(window.ids.gather(1, columns), pads.clamp(max=width), past)
    return aligned.cut(int(pads.min()))
