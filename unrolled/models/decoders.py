"""Recurrent decoders, from a fixed vector or with attention."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn

from unrolled.cells import Trace
from unrolled.config import but, only
from unrolled.models.bridge import Bridge, BridgeKind, StateShape
from unrolled.models.encoder import Encoder, EncoderOutput
from unrolled.models.recurrent_settings import (
    RECURRENT,
    RecurrentSettings,
    State,
    cell_options,
    recurrent_layer,
    state_from_torch,
    state_to_torch,
)
from unrolled.models.transformer_settings import Blocks, Feedforward
from unrolled.nn.attention_decoder import AttentionDecoder, DecoderState
from unrolled.nn.dropin import DropIn
from unrolled.nn.dropout import Dropout
from unrolled.search import Shared

ATTENDING = only(attention=but("none"))


class WriterSettings(RecurrentSettings):
    """Settings of decoders, for any encoder; the kinds of attention depend on the encoder."""

    hidden_size: int = Field(
        256,
        ge=1,
        json_schema_extra=RECURRENT,
        description="Units per layer; a Transformer has the width of its encoder.",
    )
    dropout: float = Field(0.3, ge=0, lt=1, description="Dropout of embeddings, between layers and before the scores.")
    attention: str = Field("none", json_schema_extra=RECURRENT, description="none, bahdanau, luong, soft or hard.")
    learned_state: bool = Field(
        False,
        json_schema_extra=only(kind="recurrent", bridge="zero"),
        description="bridge=zero: the state before the first step is learned, one for all; false: zeros.",
    )
    combine: Literal["last", "concat", "mean", "mix"] = Field(
        "last",
        json_schema_extra=only({"attention": "none", "num_layers": but(1)}, {"num_layers": but(1, 2)}),
        description="Layers whose states give the scores; with attention, of those above the first.",
    )
    score: Literal["additive", "dot", "scaled", "general", "multihead"] = Field(
        "general", json_schema_extra=ATTENDING, description="Score function of a query and a key."
    )
    attention_size: int | None = Field(
        None,
        ge=1,
        json_schema_extra=only(score="additive"),
        description="score=additive: width of the sum; none: hidden_size.",
    )
    heads: int = Field(
        4,
        ge=1,
        json_schema_extra=only({"kind": "transformer"}, {"score": "multihead"}),
        description="score=multihead, and transformer: heads of attention.",
    )
    bridge: BridgeKind = Field(
        "auto",
        json_schema_extra=RECURRENT,
        description="Initial state: the encoder's final one, mapped if shapes differ (linear: always); zero: zeros.",
    )
    blocks: Blocks = 3
    feedforward: Feedforward = 1024
    bidirectional: bool = Field(False, description="Always false here: a decoder may not see what it has to write.")

    @field_validator("bidirectional")
    @classmethod
    def _sees_no_future(cls, value: bool) -> bool:
        if value:
            raise ValueError(
                "a decoder cannot be bidirectional: its backward half would read the tokens it has to write. "
                "The encoder of a translator can: model.encoder.bidirectional"
            )
        return value


class DecoderSettings(WriterSettings):
    """The decoder of the target."""

    attention: Literal["none", "bahdanau", "luong"] = Field(
        "luong",
        json_schema_extra=RECURRENT,
        description="none: the decoder gets the encoder's final state only; bahdanau attends before a step, "
        "luong after it, with input feeding.",
    )


class DecoderOutput(NamedTuple):
    """Output of a decoder: features for the scores, and attention weights."""

    features: Tensor  # (B, T, F), or (B, F) of one step
    attention: Tensor | None  # (B, T, S), or (B, S)
    chosen: Tensor | None = None  # (B, T), region of hard attention; -1 for its expectation


class PlainDecoder(nn.Module):
    """Recurrent layers that start from the encoder's final state, which holds the whole source (Sutskever 2014)."""

    def __init__(self, settings: WriterSettings, input_size: int, encoder: Encoder, width: int) -> None:
        super().__init__()
        self.layer = recurrent_layer(_entered(settings), input_size)
        self.bridge = bridge_between(encoder, self.layer, settings)
        self.output_size = settings.output_size

    def forward(self, x: Tensor, encoded: EncoderOutput, lengths: Tensor | None = None) -> DecoderOutput:
        """Vectors of the target tokens (B, T, E) → all steps; steps past `lengths` (B,) are skipped."""
        output, _ = self.layer(x, state_to_torch(self.bridge(encoded.state)), lengths=lengths)
        return DecoderOutput(output, None)

    def trace(self, x: Tensor, encoded: EncoderOutput) -> tuple[DecoderOutput, Trace]:
        trace: Trace = self.layer.trace(x, state_to_torch(self.bridge(encoded.state)))
        return DecoderOutput(trace.output, None), trace

    def start(self, encoded: EncoderOutput) -> State:
        state: State = self.bridge(encoded.state)
        return state

    def step(self, x: Tensor, state: State) -> tuple[DecoderOutput, State]:
        """One step: vectors (B, E) of one token each."""
        output, final = self.layer(x[:, None], state_to_torch(state))
        return DecoderOutput(output[:, 0], None), state_from_torch(final)


class AttentiveDecoder(nn.Module):
    """A recurrent layer with attention to the encoder's memory, and further layers above it.

    Bahdanau's and Xu's scores use [s_i ; c_i ; y_{i-1}], Luong's use h̃_i, of size `width` if no layer is above it.
    """

    def __init__(self, settings: WriterSettings, input_size: int, encoder: Encoder, width: int) -> None:
        super().__init__()
        form = "xu" if settings.attention in ("soft", "hard") else settings.attention
        self.before = form != "luong"
        mixed = width if settings.num_layers == 1 else settings.hidden_size
        self.attend = AttentionDecoder(
            input_size,
            settings.hidden_size,
            encoder.output_size,
            cell=settings.cell,
            form=form,
            hard=settings.attention == "hard",
            score=settings.score,
            attention_size=settings.attention_size if settings.score == "additive" else None,
            num_heads=settings.heads if settings.score == "multihead" else 1,
            output_size=None if self.before else mixed,
            feed_dropout=settings.dropout,
            mix_dropout=settings.dropout,
            **cell_options(settings, attending=True),
        )
        self.upper: DropIn | None = None
        if settings.num_layers > 1:
            above = _entered(settings).model_copy(update={"num_layers": settings.num_layers - 1})
            self.upper = recurrent_layer(above, self.attend.output_size)
        self.dropout = Dropout(settings.dropout)
        self.bridge = bridge_between(encoder, self.attend.rnn, settings)
        looked = self.attend.context_size + input_size if self.before else 0
        self.output_size = (self.attend.output_size if self.upper is None else above.output_size) + looked

    def forward(self, x: Tensor, encoded: EncoderOutput, lengths: Tensor | None = None) -> DecoderOutput:
        """Vectors of the target tokens (B, T, E) → all steps; steps past `lengths` (B,) are skipped."""
        lower, upper = self._begin(encoded)
        seen = self.attend(x, encoded.memory, encoded.mask, lower, lengths)
        output = seen.output
        if self.upper is not None:
            output, _ = self.upper(self.dropout(output), state_to_torch(upper), lengths=lengths)
        return DecoderOutput(self._features(output, seen.context, x), seen.weights, seen.chosen)

    def trace(self, x: Tensor, encoded: EncoderOutput) -> tuple[DecoderOutput, Trace]:
        """`forward`, and the trace of the attending layer, "l0", and of those above it, "l1", …"""
        lower, upper = self._begin(encoded)
        seen, trace = self.attend.trace(x, encoded.memory, encoded.mask, lower)
        output = seen.output
        if self.upper is not None:
            above = self.upper.trace(output, state_to_torch(upper))
            output = above.output
            trace = trace.under(above)
        return DecoderOutput(self._features(output, seen.context, x), seen.weights), trace

    def start(self, encoded: EncoderOutput) -> Any:
        """The initial state: (attending layer, upper layers, shared projections of the memory)."""
        lower, upper = self._begin(encoded)
        first = self.attend.start(encoded.memory, encoded.mask, lower)
        return first.cell, upper, Shared((first.keys, first.values, first.mask))

    def step(self, x: Tensor, state: Any) -> tuple[DecoderOutput, Any]:
        cell, upper, shared = state
        seen = self.attend.step(x, DecoderState(cell, *shared.value))
        output = seen.output
        if self.upper is not None:
            output, final = self.upper(output[:, None], state_to_torch(upper))
            output, upper = output[:, 0], state_from_torch(final)
        features = self._features(output, seen.context, x)
        return DecoderOutput(features, seen.weights), (seen.state.cell, upper, shared)

    def _begin(self, encoded: EncoderOutput) -> tuple[State, State]:
        """Initial states of the attending layer, (B, H) each, and of the upper layers, (B, L - 1, H) each."""
        states = self.bridge(encoded.state)
        return tuple(s[:, 0] for s in states), tuple(s[:, 1:] for s in states)

    def _features(self, output: Tensor, context: Tensor, x: Tensor) -> Tensor:
        return torch.cat([output, context, x], dim=-1) if self.before else output


def _entered(settings: WriterSettings) -> WriterSettings:
    """Settings of layers that are given their initial state: the bridge has the learned one."""
    return settings.model_copy(update={"learned_state": False})


def bridge_between(encoder: Encoder, decoder: DropIn, settings: WriterSettings) -> Bridge:
    """The bridge from the encoder's final state to all layers of the decoder."""
    shape = StateShape(decoder.cell_class.state_names, decoder._state_sizes(), settings.num_layers)
    return Bridge(shape, encoder.final_shape, settings.bridge, settings.learned_state)
