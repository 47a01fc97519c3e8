"""The one-network baseline of translation: it writes a token for each token it reads."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from unrolled.cells import Trace
from unrolled.data import Batch
from unrolled.errors import UserError
from unrolled.kernels.lengths import real_steps
from unrolled.models.decoders import DecoderOutput
from unrolled.models.encoder import EncoderOutput, EncoderSettings
from unrolled.models.recurrent_settings import Change, recurrent_layer, state_from_torch, state_to_torch
from unrolled.nn.embedding import Embedding
from unrolled.nn.linear import Linear
from unrolled.search import Shared, TokenStep


class Stepwise(nn.Module):
    """h_t = RNN(x_t, h_{t-1}), y_t from h_t: the t-th target token follows the t-th source token.

    It cannot see the rest of the source, and word order differs between languages, so it fails. For longer targets it
    reads end tokens.
    """

    attends = False

    def __init__(self, settings: EncoderSettings, width: int, source_size: int, target_size: int, end: int) -> None:
        super().__init__()
        if settings.bidirectional:
            raise UserError(
                "model.kind=stepwise writes while it reads, and model.encoder.bidirectional=true would read ahead.",
                "Use model.encoder.bidirectional=false.",
            )
        self.end = end
        self.embedding = Embedding(source_size, width)
        self.dropout = nn.Dropout(settings.dropout)
        self.layer = recurrent_layer(settings, width)
        self.scores = Linear(settings.output_size, target_size)

    @property
    def device(self) -> torch.device:
        return self.scores.weight.device

    def showing_attention(self) -> Stepwise:
        """The network itself: there is no attention."""
        return self

    def forward(self, batch: Batch) -> DecoderOutput:
        """All steps of the target: the input of `scores`, (B, T, F)."""
        read = self.encode(batch).memory
        steps = batch.more["target_inputs"].shape[1]
        ids = torch.cat([read, read.new_full((len(read), max(0, steps - read.shape[1])), self.end)], dim=1)
        output, _ = self.layer(self.dropout(self.embedding(ids[:, :steps])))
        return DecoderOutput(self.dropout(output), None)

    def trace(self, batch: Batch, source: Change) -> tuple[DecoderOutput, Trace, Tensor]:
        """`forward`, the trace of its layers, and the tokens that they read, (B, T)."""
        read = self.encode(batch).memory
        steps = batch.more["target_inputs"].shape[1]
        ids = torch.cat([read, read.new_full((len(read), max(0, steps - read.shape[1])), self.end)], dim=1)[:, :steps]
        trace: Trace = self.layer.trace(source(self.embedding(ids)))
        return DecoderOutput(trace.output, None), trace, ids

    def encode(self, batch: Batch) -> EncoderOutput:
        """The source ids, padded with end tokens: nothing is encoded ahead."""
        assert batch.lengths is not None
        mask = real_steps(batch.lengths, batch.inputs.shape[1])
        return EncoderOutput(batch.inputs.masked_fill(~mask, self.end), mask, ())

    def read(self, batch: Batch) -> EncoderOutput:
        """The states after each token of the source, and the last of them."""
        assert batch.lengths is not None
        output, final = self.layer(self.dropout(self.embedding(batch.inputs)), lengths=batch.lengths)
        return EncoderOutput(output, real_steps(batch.lengths, batch.inputs.shape[1]), state_from_torch(final))

    def start(self, memory: EncoderOutput) -> Any:
        """The initial state: (tokens read, layers' state, source)."""
        rows = memory.memory.shape[0]
        state = state_from_torch(self.layer.initial_state(rows))
        return torch.zeros(rows, dtype=torch.int64, device=self.device), state, Shared(memory.memory)

    def step(self, tokens: Tensor, state: Any) -> TokenStep:
        """One step; `tokens` are ignored, since the output is not read again."""
        place, carried, source = state
        ids = source.value.repeat_interleave(place.shape[0] // source.value.shape[0], dim=0)  # of each hypothesis
        here = ids.gather(1, place.clamp(max=ids.shape[1] - 1)[:, None])  # (B, 1)
        here = torch.where(place[:, None] < ids.shape[1], here, self.end)
        output, final = self.layer(self.dropout(self.embedding(here)), state_to_torch(carried))
        scores = self.scores(self.dropout(output[:, 0]))
        return TokenStep(scores.float().log_softmax(-1), (place + 1, state_from_torch(final), source))
