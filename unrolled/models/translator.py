"""Translators: encoder and decoder."""

from __future__ import annotations

from unrolled.cells import Trace
from unrolled.data import Batch
from unrolled.models.decoders import DecoderOutput
from unrolled.models.embedding import Sizes, token_embedding
from unrolled.models.encoder import EncoderOutput, RecurrentEncoder
from unrolled.models.recurrent_settings import Change
from unrolled.models.stepwise import Stepwise
from unrolled.models.transformer_translator import TransformerTranslator
from unrolled.models.translator_settings import TranslatorSettings
from unrolled.models.writer import Writer


class Translator(Writer):
    """Source → encoder → memory and state → decoder → scores of the target's tokens.

    A batch holds source ids and their lengths as its inputs, and the target tokens of a `Writer`.
    """

    encoder: RecurrentEncoder

    def __init__(self, settings: TranslatorSettings, sizes: Sizes) -> None:
        width = settings.embedding_size
        embedding = token_embedding(sizes.target_size, width)
        one = settings.shared and sizes.joint
        source = embedding if one else token_embedding(sizes.source_size, width)
        super().__init__(RecurrentEncoder(settings.encoder, source), embedding, settings.decoder, settings.tied)

    def encode(self, batch: Batch) -> EncoderOutput:
        assert batch.lengths is not None
        encoded: EncoderOutput = self.encoder(batch.inputs, batch.lengths)
        return encoded

    def trace(self, batch: Batch, source: Change, target: Change) -> tuple[DecoderOutput, dict[str, Trace]]:
        """`forward` and the traces of both sides' layers; the changes are applied to both sides' vectors."""
        assert batch.lengths is not None
        encoded, read = self.encoder.trace(batch.inputs, batch.lengths, source)
        decoded, written = self.trace_writing(batch, encoded, target)
        return decoded, {"encoder": read, "decoder": written}


def translator(settings: TranslatorSettings, sizes: Sizes, end: int) -> Translator | TransformerTranslator | Stepwise:
    """Build the translator of the settings; `end` is the end token of the source."""
    if settings.kind == "transformer":
        return TransformerTranslator(settings, sizes)
    if settings.kind == "stepwise":
        return Stepwise(settings.encoder, settings.embedding_size, sizes.source_size, sizes.target_size, end)
    return Translator(settings, sizes)
