"""Picture encoder and decoder together: a picture in, words out."""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from unrolled.config import Section
from unrolled.data import Batch
from unrolled.data.signals.views import Shape
from unrolled.errors import UserError
from unrolled.models.decoders import AttentiveDecoder, WriterSettings
from unrolled.models.embedding import token_embedding
from unrolled.models.encoder import EncoderOutput
from unrolled.models.picture_encoder import BlockEncoder, MakeEncoder, PictureEncoder, PictureSettings
from unrolled.models.writer import TransformerWriter, Writer

BASELINE_DECAY = 0.9  # of the moving baseline, as Xu et al. have it


class CaptionDecoderSettings(WriterSettings):
    """What writes the caption."""

    attention: Literal["auto", "none", "soft", "hard", "bahdanau", "luong"] = Field(
        "auto",
        description="none: all it knows is one vector of the picture; soft and hard look at regions through a gate, at "
        "all of them or at one (Xu et al. 2015); bahdanau, luong: as in translate; auto: soft where there are regions.",
    )
    score: Literal["additive", "dot", "scaled", "general", "multihead"] = Field(
        "additive", description="How a query and a region are compared."
    )
    expected: float = Field(
        0.5, ge=0, lt=1, description="attention=hard: share of captions that see the mean of all regions in training."
    )


class CaptionerSettings(Section):
    """Which network describes pictures."""

    kind: Literal["recurrent", "transformer"] = Field("recurrent", description="What writes the caption.")
    embedding_size: int = Field(256, ge=1, description="Width of a token's vector; a Transformer's is hidden_size.")
    tied: bool = Field(True, description="One matrix for the tokens going in and their scores coming out.")
    positions: Literal["sinusoidal", "learned", "none"] = Field(
        "sinusoidal", description="transformer: how it is told where a token stands."
    )
    norm_first: bool = Field(True, description="transformer: normalise before each part of a block, not after it.")
    encoder: PictureSettings = Field(PictureSettings(), description="What reads the picture.")
    decoder: CaptionDecoderSettings = Field(CaptionDecoderSettings(), description="What writes the caption.")


class Captioner(Writer):
    """Picture → a vector for each region → recurrent decoder → scores of the caption's tokens.

    `baseline` is what hard attention compares a caption's log-probability with: the running mean of those before.
    """

    encoder: PictureEncoder
    baseline: Tensor

    def __init__(self, settings: CaptionerSettings, shape: Shape, tokens: int, make: MakeEncoder | None = None) -> None:
        encoder = PictureEncoder(settings.encoder, shape, make)
        embedding = token_embedding(tokens, settings.embedding_size)
        attention = resolved_attention(settings.decoder.attention, shape)
        decoder = settings.decoder.model_copy(update={"attention": attention})
        super().__init__(encoder, embedding, decoder, settings.tied)
        self.hard = attention == "hard"
        if isinstance(self.decoder, AttentiveDecoder):
            self.decoder.attend.expected = settings.decoder.expected
        # what an untrained network gives: no token is likelier than another
        self.register_buffer("baseline", torch.tensor(-math.log(tokens)))

    @property
    def grid(self) -> tuple[int, int] | None:
        """Rows and columns of the regions, where they form a grid."""
        return self.encoder.grid

    @property
    def read(self) -> PictureEncoder:
        return self.encoder

    def encode(self, batch: Batch) -> EncoderOutput:
        encoded: EncoderOutput = self.encoder(batch)
        return encoded

    @torch.no_grad()
    def follow(self, rewards: Tensor) -> None:
        """Moves the baseline towards the mean of these rewards."""
        self.baseline.lerp_(rewards.mean().to(self.baseline), 1 - BASELINE_DECAY)


class TransformerCaptioner(TransformerWriter):
    """`Captioner` with blocks of attention on both sides; the width of everything is `model.encoder.hidden_size`."""

    hard = False

    def __init__(self, settings: CaptionerSettings, shape: Shape, tokens: int, make: MakeEncoder | None = None) -> None:
        embedding = token_embedding(tokens, settings.encoder.hidden_size)
        super().__init__(embedding, settings.decoder, settings.positions, settings.norm_first, settings.tied)
        self.encoder = BlockEncoder(settings.encoder, shape, settings.norm_first, make)

    @property
    def grid(self) -> tuple[int, int] | None:
        return self.encoder.read.grid

    @property
    def read(self) -> PictureEncoder:
        return self.encoder.read

    def encode(self, batch: Batch) -> EncoderOutput:
        encoded: EncoderOutput = self.encoder(batch)
        return encoded


def resolved_attention(attention: str, shape: Shape) -> str:
    """auto looks at regions where there are any."""
    if attention == "auto":
        return "none" if shape.kind == "vector" else "soft"
    if attention != "none" and shape.kind == "vector":
        raise UserError(
            f"model.decoder.attention={attention}, and a picture is one vector: there are no regions to look at.",
            "Use model.decoder.attention=none, or features with `regions`.",
        )
    return attention


def captioner(
    settings: CaptionerSettings, shape: Shape, tokens: int, make: MakeEncoder | None = None
) -> Captioner | TransformerCaptioner:
    """The network that the settings describe, for pictures of a shape; `make` is an encoder of the user's own."""
    network = TransformerCaptioner if settings.kind == "transformer" else Captioner
    return network(settings, shape, tokens, make)
