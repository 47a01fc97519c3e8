"""The Transformer as a translator: attention in place of recurrence, cached while it writes (S10, S23)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from unrolled.data import Batch
from unrolled.models.decoders import Decoded
from unrolled.models.embedding import Sizes, token_embedding
from unrolled.models.encoder import Encoded, real
from unrolled.models.recurrent import Change
from unrolled.models.translator_settings import TranslatorSettings
from unrolled.nn.positions import Positions
from unrolled.nn.transformer import TransformerDecoder, TransformerEncoder, TransformerState
from unrolled.search import Shared, Step


class TransformerTranslator(nn.Module):
    """Embeddings and positions → encoder blocks → decoder blocks → scores of the target's tokens.

    Its interface is that of `Translator`; the width of everything is `model.encoder.hidden_size`.
    """

    attends = True

    def __init__(self, settings: TranslatorSettings, sizes: Sizes) -> None:
        super().__init__()
        width = settings.encoder.hidden_size
        self.embedding = token_embedding(sizes.target_size, width)
        one = settings.shared and sizes.joint
        self.source = self.embedding if one else token_embedding(sizes.source_size, width)
        self.scale = math.sqrt(width)
        self.source_dropout, self.dropout = nn.Dropout(settings.encoder.dropout), nn.Dropout(settings.decoder.dropout)
        self.source_positions = Positions(settings.positions, width)
        # a text that is being written has no length yet to take a fraction of
        written = "sinusoidal" if settings.positions == "fraction" else settings.positions
        self.target_positions = Positions(written, width)
        parts = [
            (side.heads, side.blocks, side.feedforward, side.dropout, settings.norm_first)
            for side in (settings.encoder, settings.decoder)
        ]
        self.encoder = TransformerEncoder(width, *parts[0])
        self.decoder = TransformerDecoder(width, *parts[1])
        self.scores = nn.Linear(width, sizes.target_size)
        if settings.tied:
            self.scores.weight = self.embedding.weight
        nn.init.zeros_(self.scores.bias)

    @property
    def device(self) -> torch.device:
        return self.scores.weight.device

    def forward(self, batch: Batch) -> Decoded:
        """All steps of the target, which is given: what `scores` reads, (B, T, F)."""
        encoded = self.encode(batch)
        x = self._target(batch.more["target_inputs"], 0)
        return Decoded(self.decoder(x, encoded.memory, memory_mask=encoded.mask), None)

    def encode(self, batch: Batch) -> Encoded:
        assert batch.lengths is not None
        mask = real(batch.inputs, batch.lengths)
        x = self.source_positions(self.source(batch.inputs) * self.scale, lengths=batch.lengths)
        return Encoded(self.encoder(self.source_dropout(x), mask), mask, ())

    def trace(self, batch: Batch, source: Change, target: Change) -> tuple[Decoded, dict[str, list[Tensor]]]:
        """`forward` without the fused attention, and the weights of every layer: (B, N, T, S) each."""
        assert batch.lengths is not None
        mask = real(batch.inputs, batch.lengths)
        x = self.source_positions(source(self.source(batch.inputs)) * self.scale, lengths=batch.lengths)
        memory, inside = self.encoder.visible(x, mask)
        y = self.target_positions(target(self.embedding(batch.more["target_inputs"])) * self.scale, 0)
        output, own, cross = self.decoder.visible(y, memory, memory_mask=mask)
        return Decoded(output, None), {"cross": cross, "encoder": inside, "decoder": own}

    def start(self, memory: Encoded) -> Any:
        """(keys and values of the steps so far, those of the memory, which are shared)."""
        state = self.decoder.start(memory.memory, memory.mask)
        return state.past, Shared((state.memory, state.memory_mask))

    def step(self, tokens: Tensor, state: Any) -> Step:
        kept = _kept(state)
        output, new = self.decoder.step(self._target(tokens[:, None], kept.length)[:, 0], kept)
        return self._said(output, new, state, None)

    def showing_attention(self) -> ShowingAttention:
        """The same steps without the fused attention, which does not tell where it looks."""
        return ShowingAttention(self)

    def step_showing(self, tokens: Tensor, state: Any) -> Step:
        kept = _kept(state)
        x = self._target(tokens[:, None], kept.length)[:, 0]
        (output, new), weights = self.decoder.step_visible(x, kept)
        return self._said(output, new, state, weights)

    def _said(self, output: Tensor, new: TransformerState, state: Any, weights: Tensor | None) -> Step:
        return Step(self.scores(output).float().log_softmax(-1), (new.past, state[1]), weights)

    def _target(self, ids: Tensor, first: int) -> Tensor:
        x: Tensor = self.dropout(self.target_positions(self.embedding(ids) * self.scale, first))
        return x


class ShowingAttention:
    """A Transformer for a search that wants to see attention: the mean over the last block's heads."""

    def __init__(self, network: TransformerTranslator) -> None:
        self.device, self.start, self.step = network.device, network.start, network.step_showing


def _kept(state: Any) -> TransformerState:
    past, shared = state
    return TransformerState(past, *shared.value)
