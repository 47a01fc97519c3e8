"""The `model` section of `translate`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from unrolled.config import Section
from unrolled.models.decoders import DecoderSettings
from unrolled.models.encoder import EncoderSettings


class TranslatorSettings(Section):
    """Which network translates."""

    kind: Literal["recurrent", "transformer", "stepwise"] = Field(
        "recurrent",
        description="recurrent and transformer: encoder and decoder; stepwise, the baseline that fails: one network, "
        "a token out for each token in.",
    )
    embedding_size: int = Field(256, ge=1, description="Width of a token's vector; a Transformer's is hidden_size.")
    tied: bool = Field(True, description="One matrix for the target tokens going in and their scores coming out.")
    shared: bool = Field(True, description="Source and target have one embedding, where they have one vocabulary.")
    positions: Literal["sinusoidal", "learned", "count", "fraction", "binary", "none"] = Field(
        "sinusoidal", description="transformer: how it is told where a token stands; the last four show why."
    )
    norm_first: bool = Field(True, description="transformer: normalise before each part of a block, not after it.")
    encoder: EncoderSettings = Field(EncoderSettings(), description="What reads the source.")
    decoder: DecoderSettings = Field(DecoderSettings(), description="What writes the target.")
