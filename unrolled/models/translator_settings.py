"""The `model` section of `translate`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from unrolled.config import Section, asking, but, only
from unrolled.models.decoders import DecoderSettings
from unrolled.models.encoder import EncoderSettings
from unrolled.models.recurrent_settings import RECURRENT, TRANSFORMER
from unrolled.models.transformer_settings import NormFirst

FRACTION = asking(
    "fraction",
    "target_positions",
    "auto",
    why="a decoder does not know how long its text will be, so this code is for the encoder alone",
    fix="Set that of the decoder too, such as model.target_positions=sinusoidal; or use another model.positions.",
)
WITH_DECODER = only(kind=("recurrent", "transformer"))


class TranslatorSettings(Section):
    """The `model` section of `translate`."""

    kind: Literal["recurrent", "transformer", "stepwise"] = Field(
        "recurrent",
        description="recurrent and transformer: encoder and decoder; stepwise, a baseline that fails: one network, "
        "one output token per input token.",
    )
    embedding_size: int = Field(
        256,
        ge=1,
        json_schema_extra=RECURRENT,
        description="Embedding size of tokens; a Transformer uses hidden_size.",
    )
    tied: bool = Field(
        True,
        json_schema_extra=WITH_DECODER,
        description="Share one matrix between target embeddings and output scores.",
    )
    tune_vectors: bool = Field(
        True,
        json_schema_extra=only({"data.source_vectors": but(None)}),
        description="Train the source's embeddings that pretrained vectors are in.",
    )
    shared: bool = Field(
        True,
        json_schema_extra=only(kind=("recurrent", "transformer"), vocabularies="one"),
        description="Share one embedding between source and target, if they share a vocabulary.",
    )
    positions: Literal["sinusoidal", "learned", "count", "fraction", "binary", "none"] = Field(
        "sinusoidal",
        json_schema_extra=TRANSFORMER | FRACTION,
        description="transformer: encoding of positions; the last four are for comparison. fraction is for the "
        "encoder, and needs target_positions.",
    )
    target_positions: Literal["auto", "sinusoidal", "learned", "count", "binary", "none"] = Field(
        "auto", json_schema_extra=TRANSFORMER, description="transformer: those of the decoder; auto: as positions."
    )
    norm_first: NormFirst = True
    encoder: EncoderSettings = Field(EncoderSettings(), description="Encoder of the source.")
    decoder: DecoderSettings = Field(
        DecoderSettings(), json_schema_extra=WITH_DECODER, description="Decoder of the target."
    )
