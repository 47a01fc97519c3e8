"""Writers: decoders of any encoder's memory, with their interface to a search."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from unrolled.cells import Trace
from unrolled.cells.apart import pointwise
from unrolled.data import Batch
from unrolled.kernels.vocabulary.scores import linear_scores
from unrolled.models.decoders import AttentiveDecoder, DecoderOutput, PlainDecoder, WriterSettings
from unrolled.models.encoder import Encoder, EncoderOutput
from unrolled.models.recurrent_settings import Change
from unrolled.nn.dropout import Dropout
from unrolled.nn.linear import Linear
from unrolled.nn.positions import Positions
from unrolled.nn.transformer import TransformerDecoder, TransformerState
from unrolled.nn.transformer_cache import FixedState
from unrolled.search import Shared, TokenStep
from unrolled.search.tokens.steady import GraphCache, graphs_of


class _TokenScores(nn.Module):
    """The output layer of both writers: a score for each token, tied to the embeddings or not."""

    scores: nn.Linear

    def _add_scores(self, width: int, embedding: nn.Embedding, tied: bool) -> None:
        self.scores = Linear(width, embedding.num_embeddings)
        if tied:
            self.scores.weight = embedding.weight
        nn.init.zeros_(self.scores.bias)

    @property
    def device(self) -> torch.device:
        return self.scores.weight.device

    @property
    def graphs(self) -> GraphCache | None:
        """Recorded searches; none in training, where steps draw."""
        return None if self.training else graphs_of(self)

    def encode(self, batch: Batch) -> EncoderOutput:
        raise NotImplementedError

    def _scored(self, features: Tensor, state: Any, attention: Tensor | None) -> TokenStep:
        scores = linear_scores(features, self.scores.weight, self.scores.bias)
        return TokenStep(scores, state, attention, normalised=False)


class Writer(_TokenScores):
    """An encoder's memory and state → recurrent decoder → scores of the target's tokens.

    A batch has the target tokens in `more`, `target_inputs` (B, T), and their lengths, `target_lengths` (B,); `encode`
    turns the rest into a memory.
    """

    def __init__(self, encoder: Encoder, embedding: nn.Embedding, settings: WriterSettings, tied: bool) -> None:
        super().__init__()
        width = embedding.embedding_dim
        self.embedding, self.encoder = embedding, encoder
        make = PlainDecoder if settings.attention == "none" else AttentiveDecoder
        inner = width if tied else settings.hidden_size
        self.decoder: PlainDecoder | AttentiveDecoder = make(settings, width, encoder, inner)
        self.dropout = Dropout(settings.dropout)
        self.readout = Linear(self.decoder.output_size, inner) if self.decoder.output_size != inner else None
        self._add_scores(inner, embedding, tied)

    @property
    def attends(self) -> bool:
        """True if steps return attention with `showing_attention`."""
        return not isinstance(self.decoder, PlainDecoder)

    def showing_attention(self) -> Writer:
        """The model for a search that returns attention."""
        return self

    def forward(self, batch: Batch) -> DecoderOutput:
        """All steps of the known target: the input of `scores` (B, T, F), and the attention (B, T, S)."""
        x = self.dropout(self.embedding(batch.more["target_inputs"]))
        decoded: DecoderOutput = self.decoder(x, self.encode(batch), batch.more.get("target_lengths"))
        return decoded._replace(features=self._read_out(decoded.features))

    def trace_writing(self, batch: Batch, encoded: EncoderOutput, target: Change) -> tuple[DecoderOutput, Trace]:
        """The decoder part of `forward`, and the trace of its layers."""
        decoded, written = self.decoder.trace(target(self.embedding(batch.more["target_inputs"])), encoded)
        return DecoderOutput(self._read_out(decoded.features), decoded.attention), written

    def start(self, memory: EncoderOutput) -> Any:
        """The state before the first token (see `unrolled.search`)."""
        return self.decoder.start(memory)

    def steady(self, memory: EncoderOutput, rows: int, width: int, steps: int) -> tuple[Writer, Any]:
        """See `unrolled.search.tokens.steady`: the states of recurrent layers keep their shapes."""
        return self, self.start(memory.padded())

    def step(self, tokens: Tensor, state: Any) -> TokenStep:
        """tokens (B,) → the distribution of the next token."""
        decoded, state = self.decoder.step(self.dropout(self.embedding(tokens)), state)
        return self._scored(self._read_out(decoded.features), state, decoded.attention)

    def _read_out(self, features: Tensor) -> Tensor:
        if self.readout is not None:
            features = pointwise(torch.tanh, self.readout(self.dropout(features)))
        read: Tensor = self.dropout(features)
        return read


class TransformerWriter(_TokenScores):
    """`Writer` with Transformer blocks instead of recurrence, and a cache of keys and values."""

    attends = True

    def __init__(
        self, embedding: nn.Embedding, settings: WriterSettings, positions: str, norm_first: bool, tied: bool
    ) -> None:
        super().__init__()
        width = embedding.embedding_dim
        self.embedding, self.scale = embedding, math.sqrt(width)
        self.dropout = Dropout(settings.dropout)
        # the length of a text is unknown while it is written
        self.target_positions = Positions("sinusoidal" if positions == "fraction" else positions, width)
        parts = (settings.heads, settings.blocks, settings.feedforward, settings.dropout, norm_first)
        self.decoder = TransformerDecoder(width, *parts)
        self._add_scores(width, embedding, tied)

    def forward(self, batch: Batch) -> DecoderOutput:
        """All steps of the known target: the input of `scores`, (B, T, F)."""
        encoded = self.encode(batch)
        x = self._target(batch.more["target_inputs"], 0)
        return DecoderOutput(self.decoder(x, encoded.memory, memory_mask=encoded.mask), None)

    def trace_writing(
        self, batch: Batch, encoded: EncoderOutput, target: Change
    ) -> tuple[DecoderOutput, dict[str, list[Tensor]]]:
        """The decoder part of `forward` without fused attention, and the weights of every layer."""
        y = self.target_positions(target(self.embedding(batch.more["target_inputs"])) * self.scale, 0)
        output, own, cross = self.decoder.visible(y, encoded.memory, memory_mask=encoded.mask)
        return DecoderOutput(output, None), {"cross": cross, "decoder": own}

    def start(self, memory: EncoderOutput) -> Any:
        """The initial state: (keys and values of past steps, shared ones of the memory)."""
        state = self.decoder.start(memory.memory, memory.mask)
        return state.past, Shared((state.memory, state.memory_mask))

    def step(self, tokens: Tensor, state: Any) -> TokenStep:
        kept = _kept(state)
        output, new = self.decoder.step(self._target(tokens[:, None], kept.length)[:, 0], kept)
        return self._scored(output, (new.past, state[1]), None)

    def steady(
        self, memory: EncoderOutput, rows: int, width: int, steps: int, visible: bool = False
    ) -> tuple[SteadyWriter, Any] | None:
        """See `unrolled.search.tokens.steady`: keys and values have places for all steps."""
        if self.target_positions.kind == "learned" and steps > self.target_positions.max_length:
            return None
        started = self.decoder.start((memory := memory.padded()).memory, memory.mask)
        state = self.decoder.fixed_start(rows, width, steps, started.memory[0][0].dtype)
        return SteadyWriter(self, visible, self.target_positions.table(steps, self.device)), (
            state.position,
            state.ancestors,
            Shared((state.kept, started.memory, started.memory_mask)),
        )

    def showing_attention(self) -> ShowingAttention:
        """The same steps without fused attention, which returns no weights."""
        return ShowingAttention(self)

    def step_showing(self, tokens: Tensor, state: Any) -> TokenStep:
        kept = _kept(state)
        x = self._target(tokens[:, None], kept.length)[:, 0]
        (output, new), weights = self.decoder.step_visible(x, kept)
        return self._scored(output, (new.past, state[1]), weights)

    def target_step(self, tokens: Tensor, number: Tensor, codes: Tensor | None) -> Tensor:
        """Tokens (B,) of the steps of some number as vectors (B, D)."""
        x: Tensor = self.dropout(self.target_positions.step(self.embedding(tokens) * self.scale, number, codes))
        return x

    def _target(self, ids: Tensor, first: int | Tensor) -> Tensor:
        x: Tensor = self.dropout(self.target_positions(self.embedding(ids) * self.scale, first))
        return x


class ShowingAttention:
    """A Transformer whose steps return attention: the mean over the last block's heads."""

    def __init__(self, network: TransformerWriter) -> None:
        self.device, self.start, self.step = network.device, network.start, network.step_showing
        self.graphs, self.steady = network.graphs, partial(network.steady, visible=True)


class SteadyWriter:
    """A Transformer whose steps have fixed shapes; `visible`: they return attention. `codes` are those of positions."""

    def __init__(self, network: TransformerWriter, visible: bool, codes: Tensor | None) -> None:
        self.network, self.visible, self.codes, self.start = network, visible, codes, network.start

    def step(self, tokens: Tensor, state: Any) -> TokenStep:
        position, ancestors, shared = state
        x = self.network.target_step(tokens, position, self.codes)
        before = FixedState(position, ancestors, *shared.value)
        output, after, weights = self.network.decoder.fixed_step(x, before, self.visible)
        return self.network._scored(output, (after.position, after.ancestors, shared), weights)


def _kept(state: Any) -> TransformerState:
    past, shared = state
    return TransformerState(past, *shared.value)
