"""The layers between input and output: recurrent ones, or a Transformer's encoder; a vector for each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from unrolled.cells import Trace
from unrolled.kernels.lengths import real_steps
from unrolled.models.recurrent_settings import (
    RecurrentSettings,
    State,
    recurrent_layer,
    state_from_torch,
    state_to_torch,
)
from unrolled.models.transformer_settings import Feedforward, Heads, NormFirst, PositionEncoding, check_heads
from unrolled.nn.dropin import DropIn
from unrolled.nn.linear import Linear
from unrolled.nn.positions import Positions
from unrolled.nn.transformer import TransformerEncoder, TransformerState

LONGEST = 4096  # steps with a learned position
Step = Callable[[Tensor, Any], tuple[Tensor, Any]]
"""One step of a stream: x (1, D) and the state, None at first → the output (1, H) and the state."""


class EncoderLayerSettings(RecurrentSettings):
    """Recurrent layers, or a Transformer's encoder."""

    kind: Literal["recurrent", "transformer"] = Field(
        "recurrent", description="Recurrent layers, or the encoder of a Transformer: hidden_size is its width."
    )
    num_layers: int = Field(1, ge=1, description="Number of recurrent layers, or of Transformer blocks.")
    bidirectional: bool = Field(
        True, description="Read in both directions; false: a step depends on the past alone, a Transformer is causal."
    )
    heads: Heads = 4
    feedforward: Feedforward = 512
    positions: PositionEncoding = "sinusoidal"
    norm_first: NormFirst = True

    @property
    def width(self) -> int:
        """Width of the output of all directions."""
        if self.kind == "transformer":
            return self.hidden_size
        return self.output_size * (2 if self.bidirectional else 1)


class TransformerLayers(nn.Module):
    """Vectors (B, T, D) → projection and positions → blocks of self-attention → (B, T, hidden_size).

    It is called as recurrent layers are. If it is `causal`, a step attends to the past alone.
    """

    def __init__(self, settings: EncoderLayerSettings, input_size: int, *, longest: int = LONGEST) -> None:
        super().__init__()
        width, heads = settings.hidden_size, settings.heads
        check_heads(width, heads)
        self.project = Linear(input_size, width)
        self.positions = Positions(settings.positions, width, longest)
        self.dropout = nn.Dropout(settings.dropout)
        parts = (heads, settings.num_layers, settings.feedforward, settings.dropout, settings.norm_first)
        self.encoder = TransformerEncoder(width, *parts, causal=not settings.bidirectional)

    @property
    def causal(self) -> bool:
        return self.encoder.causal

    def forward(
        self,
        x: Tensor,
        state: State | None = None,
        *,
        lengths: Tensor | None = None,
        resets: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """The output (B, T, H) for whole sequences, zero in the padding, and an empty state."""
        assert not state, "a whole sequence begins without a state"
        assert resets is None, "a whole sequence has no resets"
        mask = None if lengths is None else real_steps(lengths, x.shape[1])
        return self.encoder(self._placed(x), mask), ()

    def visible(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`forward` without the fused attention, and the weights of all blocks, (B, L, N, T, T)."""
        mask = None if lengths is None else real_steps(lengths, x.shape[1])
        output, weights = self.encoder.visible(self._placed(x), mask)
        return output, torch.stack(weights, dim=1)

    def step(self, x: Tensor, state: TransformerState | None) -> tuple[Tensor, TransformerState]:
        """One more step of a causal encoder, x (B, D): keys and values of the past are kept."""
        state = self.encoder.start(len(x)) if state is None else state
        output, state = self.encoder.step(self._placed(x[:, None], state.length)[:, 0], state)
        return output, state

    def _placed(self, x: Tensor, first: int = 0) -> Tensor:
        placed: Tensor = self.dropout(self.positions(self.project(x), first))
        return placed


class LookedAt(NamedTuple):
    """The output of layers (B, T, H), and what a trace shows of them."""

    output: Tensor
    trace: Trace | None  # of recurrent layers
    attention: Tensor | None  # (L, N, T, T) of a Transformer, of the first row


def encoder_layers(settings: EncoderLayerSettings, input_size: int) -> DropIn | TransformerLayers:
    """The layers that the settings describe."""
    if settings.kind == "transformer":
        return TransformerLayers(settings, input_size)
    return recurrent_layer(settings, input_size, bidirectional=settings.bidirectional)


def looked_at(layer: DropIn | TransformerLayers, x: Tensor, lengths: Tensor | None) -> LookedAt:
    """The output of layers with their states and gates, or their attention."""
    if isinstance(layer, TransformerLayers):
        output, attention = layer.visible(x, lengths)
        return LookedAt(output, None, attention[0].detach())
    trace: Trace = layer.trace(x, lengths=lengths)
    return LookedAt(trace.output, trace, None)


def step_of(layer: DropIn | TransformerLayers) -> Step:
    """The step of layers that read in one direction, for streams."""
    if isinstance(layer, TransformerLayers):
        return layer.step
    if next(layer.parameters()).device.type == "cpu":
        stepper = layer.stepper()
        return lambda x, state: stepper(x, stepper.initial_state(len(x)) if state is None else state)

    def step(x: Tensor, state: Any) -> tuple[Tensor, Any]:
        output, final = layer(x[:, None], state_to_torch(state))
        return output[:, 0], state_from_torch(final)

    return step
