"""The Transformer as a translator, with cached keys and values."""

from __future__ import annotations

from torch import Tensor

from unrolled.data import Batch
from unrolled.kernels.lengths import real_steps
from unrolled.models.decoders import DecoderOutput
from unrolled.models.embedding import Sizes, token_embedding
from unrolled.models.encoder import EncoderOutput
from unrolled.models.recurrent_settings import Change
from unrolled.models.translator_settings import TranslatorSettings
from unrolled.models.writer import TransformerWriter
from unrolled.nn.dropout import Dropout
from unrolled.nn.positions import Positions
from unrolled.nn.transformer import TransformerEncoder


class TransformerTranslator(TransformerWriter):
    """Embeddings and positions → encoder blocks → decoder blocks → scores of the target's tokens.

    Its interface is that of `Translator`; all layers have the width `model.encoder.hidden_size`.
    """

    def __init__(self, settings: TranslatorSettings, sizes: Sizes) -> None:
        width, side = settings.encoder.hidden_size, settings.encoder
        embedding = token_embedding(sizes.target_size, width)
        codes = settings.positions if settings.target_positions == "auto" else settings.target_positions
        super().__init__(embedding, settings.decoder, codes, settings.norm_first, settings.tied)
        one = settings.shared and sizes.joint
        self.source = embedding if one else token_embedding(sizes.source_size, width)
        self.source_dropout = Dropout(side.dropout)
        self.source_positions = Positions(settings.positions, width)
        parts = (side.heads, side.blocks, side.feedforward, side.dropout, settings.norm_first)
        self.encoder = TransformerEncoder(width, *parts)

    def encode(self, batch: Batch) -> EncoderOutput:
        assert batch.lengths is not None
        mask = real_steps(batch.lengths, batch.inputs.shape[1])
        x = self.source_positions(self.source(batch.inputs) * self.scale, lengths=batch.lengths)
        return EncoderOutput(self.encoder(self.source_dropout(x), mask), mask, ())

    def trace(self, batch: Batch, source: Change, target: Change) -> tuple[DecoderOutput, dict[str, list[Tensor]]]:
        """`forward` without the fused attention, and the weights of every layer: (B, N, T, S) each."""
        assert batch.lengths is not None
        mask = real_steps(batch.lengths, batch.inputs.shape[1])
        x = self.source_positions(source(self.source(batch.inputs)) * self.scale, lengths=batch.lengths)
        memory, inside = self.encoder.visible(x, mask)
        decoded, written = self.trace_writing(batch, EncoderOutput(memory, mask, ()), target)
        return decoded, {"cross": written["cross"], "encoder": inside, "decoder": written["decoder"]}
