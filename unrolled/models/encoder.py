"""Encoders of tokens: a vector for each token, and a final state."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from pydantic import Field
from torch import Tensor, nn

from unrolled.cells import Trace
from unrolled.config import only
from unrolled.kernels.lengths import real_steps
from unrolled.models.bridge import StateShape
from unrolled.models.recurrent_settings import (
    RECURRENT,
    Change,
    RecurrentSettings,
    State,
    recurrent_layer,
    state_from_torch,
    unchanged,
)
from unrolled.models.transformer_settings import Blocks, Feedforward, Heads
from unrolled.nn.dropout import Dropout

POSITIONS_AT_ONCE = 8  # a padded memory has a multiple of these


class EncoderSettings(RecurrentSettings):
    """The encoder of the source."""

    hidden_size: int = Field(256, ge=1, description="Units per layer and direction; width of a Transformer.")
    dropout: float = Field(0.3, ge=0, lt=1, description="Dropout of embeddings, between layers and of the output.")
    bidirectional: bool = Field(True, json_schema_extra=RECURRENT, description="Read in both directions.")
    reverse: bool = Field(
        False, json_schema_extra=only(kind="recurrent"), description="Reverse the source (Sutskever et al. 2014)."
    )
    blocks: Blocks = 3
    heads: Heads = 4
    feedforward: Feedforward = 1024


class EncoderOutput(NamedTuple):
    """Output of an encoder. Its rows can be selected like those of a state."""

    memory: Tensor  # (B, S, M), a vector for each token
    mask: Tensor  # (B, S), True where a token is real
    state: State  # (B, L·directions, H) each; none from a Transformer

    def padded(self) -> EncoderOutput:
        """The same with a few more positions of padding, so that many memories have one shape."""
        extra = -self.memory.shape[1] % POSITIONS_AT_ONCE
        if not extra:
            return self
        pad = torch.nn.functional.pad
        return self._replace(memory=pad(self.memory, (0, 0, 0, extra)), mask=pad(self.mask, (0, extra)))


class Encoder(Protocol):
    """The interface of encoders: the width of the memory, and the shape of the final state."""

    @property
    def output_size(self) -> int: ...
    @property
    def final_shape(self) -> StateShape: ...


class RecurrentEncoder(nn.Module):
    """Embedding → recurrent layers in one direction or both."""

    def __init__(self, settings: EncoderSettings, embedding: nn.Embedding) -> None:
        super().__init__()
        self.embedding, self.reverse = embedding, settings.reverse
        self.dropout = Dropout(settings.dropout)
        self.layer = recurrent_layer(settings, embedding.embedding_dim, bidirectional=settings.bidirectional)
        self.output_size = settings.output_size * (2 if settings.bidirectional else 1)

    @property
    def final_shape(self) -> StateShape:
        layer = self.layer
        sizes = tuple(layer._state_sizes())
        return StateShape(layer.cell_class.state_names, sizes, layer.num_layers, 2 if layer.bidirectional else 1)

    def forward(self, ids: Tensor, lengths: Tensor) -> EncoderOutput:
        """Encode token ids (B, S); each row ends with an end token."""
        mask = real_steps(lengths, ids.shape[1])
        places = turned(ids, lengths) if self.reverse else None
        x = self.dropout(self.embedding(ids if places is None else ids.gather(1, places)))
        output, final = self.layer(x, lengths=lengths)
        return EncoderOutput(self.dropout(_at_home(output, places)), mask, state_from_torch(final))

    def trace(self, ids: Tensor, lengths: Tensor, change: Change = unchanged) -> tuple[EncoderOutput, Trace]:
        """`forward`, and the trace of its layers, in reading order; `change` is applied to the vectors."""
        mask = real_steps(lengths, ids.shape[1])
        places = turned(ids, lengths) if self.reverse else None
        x = change(self.embedding(ids))
        if places is not None:
            x = x.gather(1, places[..., None].expand_as(x))
        trace: Trace = self.layer.trace(x, lengths=lengths)
        return EncoderOutput(_at_home(trace.output, places), mask, state_from_torch(trace.state)), trace


def _at_home(output: Tensor, places: Tensor | None) -> Tensor:
    """Vectors back in the order of their tokens."""
    return output if places is None else output.gather(1, places[..., None].expand_as(output))


def turned(ids: Tensor, lengths: Tensor) -> Tensor:
    """Indices (B, S) that reverse each row, except the end token and padding.

    >>> turned(torch.zeros(2, 4), torch.tensor([4, 3]))
    tensor([[2, 1, 0, 3],
            [1, 0, 2, 3]])
    """
    steps = torch.arange(ids.shape[1], device=ids.device).expand(ids.shape[0], -1)
    last = lengths[:, None] - 2  # the position before the end token
    return torch.where(steps <= last, last - steps, steps)
