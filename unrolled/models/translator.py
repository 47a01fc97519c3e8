"""Encoder and decoder together: a sequence in, another one out (S23)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from unrolled.cells import Trace
from unrolled.data import Batch
from unrolled.models.decoders import AttentiveDecoder, Decoded, PlainDecoder
from unrolled.models.embedding import Sizes, token_embedding
from unrolled.models.encoder import Encoded, RecurrentEncoder
from unrolled.models.recurrent import Change
from unrolled.models.stepwise import Stepwise
from unrolled.models.transformer import TransformerTranslator
from unrolled.models.translator_settings import TranslatorSettings
from unrolled.search import Step


class Translator(nn.Module):
    """Source → encoder → memory and state → decoder → scores of the target's tokens.

    A batch holds source ids and their lengths as its inputs, and in `more` the target tokens that are read,
    `target_inputs` (B, T), and their number, `target_lengths` (B,).
    """

    def __init__(self, settings: TranslatorSettings, sizes: Sizes) -> None:
        super().__init__()
        width = settings.embedding_size
        self.embedding = token_embedding(sizes.target_size, width)
        one = settings.shared and sizes.joint
        source = self.embedding if one else token_embedding(sizes.source_size, width)
        self.encoder = RecurrentEncoder(settings.encoder, source)
        make = PlainDecoder if settings.decoder.attention == "none" else AttentiveDecoder
        inner = width if settings.tied else settings.decoder.hidden_size
        self.decoder: PlainDecoder | AttentiveDecoder = make(settings.decoder, width, self.encoder, inner)
        self.dropout = nn.Dropout(settings.decoder.dropout)
        self.readout = nn.Linear(self.decoder.output_size, inner) if self.decoder.output_size != inner else None
        self.scores = nn.Linear(inner, sizes.target_size)
        if settings.tied:
            self.scores.weight = self.embedding.weight
        nn.init.zeros_(self.scores.bias)

    @property
    def device(self) -> torch.device:
        return self.scores.weight.device

    @property
    def attends(self) -> bool:
        """Whether steps give attention, if `showing_attention`."""
        return not isinstance(self.decoder, PlainDecoder)

    def showing_attention(self) -> Translator:
        """What a search steps through where it wants to see attention."""
        return self

    def forward(self, batch: Batch) -> Decoded:
        """All steps of the target, which is given: what `scores` reads (B, T, F), and the attention (B, T, S)."""
        x = self.dropout(self.embedding(batch.more["target_inputs"]))
        decoded = self.decoder(x, self.encode(batch))
        return Decoded(self._read_out(decoded.features), decoded.attention)

    def encode(self, batch: Batch) -> Encoded:
        assert batch.lengths is not None
        encoded: Encoded = self.encoder(batch.inputs, batch.lengths)
        return encoded

    def trace(self, batch: Batch, source: Change, target: Change) -> tuple[Decoded, dict[str, Trace]]:
        """`forward` and the traces of both sides' layers; the changes are done to both sides' vectors."""
        assert batch.lengths is not None
        encoded, read = self.encoder.trace(batch.inputs, batch.lengths, source)
        x = target(self.embedding(batch.more["target_inputs"]))
        decoded, written = self.decoder.trace(x, encoded)
        return Decoded(self._read_out(decoded.features), decoded.attention), {"encoder": read, "decoder": written}

    def start(self, memory: Encoded) -> Any:
        """The state before the first token (see `unrolled.search`)."""
        return self.decoder.start(memory)

    def step(self, tokens: Tensor, state: Any) -> Step:
        """tokens (B,) → the distribution of the token that follows."""
        decoded, state = self.decoder.step(self.dropout(self.embedding(tokens)), state)
        scores = self.scores(self._read_out(decoded.features))
        return Step(scores.float().log_softmax(-1), state, decoded.attention)

    def _read_out(self, features: Tensor) -> Tensor:
        if self.readout is not None:
            features = torch.tanh(self.readout(self.dropout(features)))
        read: Tensor = self.dropout(features)
        return read


def translator(settings: TranslatorSettings, sizes: Sizes, end: int) -> Translator | TransformerTranslator | Stepwise:
    """The network that the settings describe; `end` is the end token of the source."""
    if settings.kind == "transformer":
        return TransformerTranslator(settings, sizes)
    if settings.kind == "stepwise":
        return Stepwise(settings.encoder, settings.embedding_size, sizes.source_size, sizes.target_size, end)
    return Translator(settings, sizes)
