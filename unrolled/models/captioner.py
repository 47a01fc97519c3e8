"""Captioners: picture encoder and decoder."""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from unrolled.config import Section, only
from unrolled.data import Batch
from unrolled.data.signals.views import Shape
from unrolled.errors import UserError
from unrolled.models.decoders import ATTENDING, AttentiveDecoder, WriterSettings
from unrolled.models.embedding import token_embedding
from unrolled.models.encoder import EncoderOutput
from unrolled.models.picture_encoder import BlockEncoder, MakeEncoder, PictureEncoder, PictureSettings
from unrolled.models.recurrent_settings import RECURRENT
from unrolled.models.transformer_settings import NormFirst, PositionEncoding
from unrolled.models.writer import TransformerWriter, Writer

BASELINE_DECAY = 0.9  # decay of the moving baseline (Xu et al. 2015)


class CaptionDecoderSettings(WriterSettings):
    """The decoder of captions."""

    attention: Literal["auto", "none", "soft", "hard", "bahdanau", "luong"] = Field(
        "auto",
        json_schema_extra=RECURRENT,
        description="none: the decoder gets one vector of the picture; soft and hard attend to regions through a gate, "
        "to all of them or to one (Xu et al. 2015); bahdanau, luong: as in translate; auto: soft if there are regions.",
    )
    score: Literal["additive", "dot", "scaled", "general", "multihead"] = Field(
        "additive", json_schema_extra=ATTENDING, description="Score function of a query and a region."
    )
    expected: float = Field(
        0.5,
        ge=0,
        lt=1,
        json_schema_extra=only(attention="hard"),
        description="attention=hard: share of training captions that get the mean of all regions.",
    )


class CaptionerSettings(Section):
    """The `model` section of `caption`."""

    kind: Literal["recurrent", "transformer"] = Field("recurrent", description="Decoder of captions.")
    embedding_size: int = Field(
        256, ge=1, json_schema_extra=RECURRENT, description="Embedding size of tokens; a Transformer uses hidden_size."
    )
    tied: bool = Field(True, description="Share one matrix between input embeddings and output scores.")
    positions: PositionEncoding = "sinusoidal"
    norm_first: NormFirst = True
    encoder: PictureSettings = Field(PictureSettings(), description="Encoder of pictures.")
    decoder: CaptionDecoderSettings = Field(CaptionDecoderSettings(), description="Decoder of captions.")


class Captioner(Writer):
    """Picture → a vector for each region → recurrent decoder → scores of the caption's tokens.

    `baseline` is the running mean of the captions' log-probabilities, which hard attention subtracts.
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
        # the value of an untrained network: all tokens equally likely
        self.register_buffer("baseline", torch.tensor(-math.log(tokens)))

    @property
    def grid(self) -> tuple[int, int] | None:
        """Rows and columns of the regions, if they form a grid."""
        return self.encoder.grid

    @property
    def read(self) -> PictureEncoder:
        return self.encoder

    def encode(self, batch: Batch) -> EncoderOutput:
        encoded: EncoderOutput = self.encoder(batch)
        return encoded

    @torch.no_grad()
    def follow(self, rewards: Tensor) -> None:
        """Move the baseline towards the mean of these rewards."""
        self.baseline.lerp_(rewards.mean().to(self.baseline), 1 - BASELINE_DECAY)


class TransformerCaptioner(TransformerWriter):
    """`Captioner` with Transformer blocks on both sides; all have the width `model.encoder.hidden_size`."""

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
    """The kind of attention; auto is soft if there are regions."""
    if attention == "auto":
        return "none" if shape.kind == "vector" else "soft"
    if attention != "none" and shape.kind == "vector":
        raise UserError(
            f"model.decoder.attention={attention}, but a picture is one vector without regions.",
            "Use model.decoder.attention=none, or features with `regions`.",
        )
    return attention


def captioner(
    settings: CaptionerSettings, shape: Shape, tokens: int, make: MakeEncoder | None = None
) -> Captioner | TransformerCaptioner:
    """Build the captioner for pictures of a shape; `make` is a custom encoder."""
    network = TransformerCaptioner if settings.kind == "transformer" else Captioner
    return network(settings, shape, tokens, make)
