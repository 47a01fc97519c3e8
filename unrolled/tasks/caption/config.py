"""The config of `caption`."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from unrolled.config import Section, but, only
from unrolled.models.captioner import CaptionerSettings
from unrolled.models.picture_encoder import PIXELS
from unrolled.training import ExampleTraining, ForcingSettings
from unrolled.training.settings import AVERAGE

TABLE = only({"train": but(None)}, {"valid": but(None)})
HARD = only({"model.decoder.attention": "hard"})


class CaptionData(Section):
    """The data, and its tokens."""

    train: str | None = Field(
        None,
        description='{"image": name, "captions": [...]} (.jsonl, .parquet), or image TAB caption (.tsv), .csv; '
        "none: letters of matplotlib's fonts and their names.",
    )
    valid: str | None = Field(None, description="A file to validate on; none: a part of the training pictures.")
    valid_fraction: float = Field(
        0.1, gt=0, lt=1, json_schema_extra=only(valid=None), description="How large a part, if there is no valid file."
    )
    images: str | None = Field(
        None, description="Where the pictures are: a folder, .zip, or .npz of pictures or features; none: beside train."
    )
    valid_images: str | None = Field(
        None, json_schema_extra=only(valid=but(None)), description="Where those of data.valid are; none: data.images."
    )
    image_column: str | None = Field(
        None, json_schema_extra=TABLE, description="Name or number of the picture's column; none: 1, image."
    )
    caption_column: str | None = Field(
        None, json_schema_extra=TABLE, description="Name or number of the captions' column; none: 2, captions."
    )
    size: int | None = Field(
        None,
        ge=4,
        json_schema_extra=PIXELS,
        description="Pictures become squares of so many pixels; none: as the first is, 64 at the most.",
    )
    level: Literal["auto", "char", "word", "bpe"] = Field(
        "auto",
        description="A token is a character, a word between blanks, or a learnt piece of one (bpe); auto: char where "
        "captions are one or two words, otherwise word.",
    )
    min_count: int = Field(1, ge=1, description="Rarer words and characters are unknown, and never written.")
    max_size: int | None = Field(None, ge=3, description="Largest vocabulary; none: everything, for bpe 500 to 8000.")
    lowercase: bool = Field(False, description="Read and write captions in lower case; scores ignore case then.")


class CaptionTraining(ForcingSettings, ExampleTraining):
    """Training on pictures with captions."""

    usual_epochs: ClassVar[int] = 10
    usual_updates: ClassVar[int] = 1000
    batch_size: int = Field(64, ge=1, description="Captions side by side.")
    lr: float = Field(2e-3, gt=0, description="Learning rate at its highest; lr / 3 if the loss jumps about.")
    warmup_steps: int = Field(100, ge=0, description="Updates over which the learning rate rises to lr.")
    average: float = Field(
        0.99,
        ge=0,
        lt=1,
        json_schema_extra=AVERAGE,
        description="Decay of a running mean of the weights, which is evaluated and kept; 0: none.",
    )
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="Share of certainty given to all tokens alike.")
    shift: int = Field(
        0,
        ge=0,
        json_schema_extra=PIXELS,
        description="Pixels: each picture is moved by up to so many, anew every time.",
    )
    doubly_stochastic: float = Field(
        0.1,
        ge=0,
        json_schema_extra=only({"model.decoder.attention": ("soft", "bahdanau", "luong")}),
        description="soft attention: weight of Σ (1 − Σ_t α_tj)², so that all regions are looked at.",
    )
    reinforce: float = Field(
        1.0, ge=0, json_schema_extra=HARD, description="hard attention: weight of the reward for where it looked."
    )
    entropy: float = Field(
        0.01, ge=0, json_schema_extra=HARD, description="hard attention: weight of the entropy of where it may look."
    )
    valid_free: int = Field(
        500, ge=1, description="Validation pictures that are also described at every evaluation, greedily."
    )
    select: Literal["auto", "nats_per_token", "bleu4", "cider", "chrf", "exact_match"] = Field(
        "auto",
        description="What the best model is best at; auto: cider where pictures have several captions, otherwise bleu4 "
        "for sentences and chrf for a few words.",
    )


class CaptionConfig(Section):
    """A config of `caption`."""

    task: Literal["caption"] = Field("caption", description="What the config is for.")
    data: CaptionData = CaptionData()
    model: CaptionerSettings = CaptionerSettings()
    train: CaptionTraining = CaptionTraining()
