"""A config of `generate`: what is read, which network, how it is trained."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from unrolled.config import Section, only
from unrolled.models import LanguageModelSettings
from unrolled.training import ForcingSettings, TrainSettings

CARRIED = only({"model.kind": ("recurrent", "feedforward")})


class DataSettings(Section):
    """The data, and its tokens."""

    train: str | None = Field(None, description="A UTF-8 text file; none: the help pages inside Python.")
    valid: str | None = Field(None, description="A text file to validate on; none: the end of the training text.")
    valid_fraction: float = Field(
        0.1,
        gt=0,
        lt=1,
        json_schema_extra=only(valid=None),
        description="How much of the end, if there is no valid file.",
    )
    level: Literal["char", "word", "bpe", "symbols"] = Field(
        "char", description="A token is a character, a word, a learnt piece of one, or a symbol between blanks."
    )
    min_count: int = Field(1, ge=1, description="Rarer tokens are unknown.")
    max_size: int | None = Field(None, ge=2, description="Largest vocabulary; none: everything, 8000 for bpe.")
    lowercase: bool = Field(False, description="Read everything as lower case.")
    cache: str | None = Field(
        None, description="Folder where texts are kept as ids; none: texts of 64 MB and more, in ~/.cache/unrolled."
    )
    cache_workers: int | None = Field(
        None, ge=1, description="Processes that make what the cache lacks of a large text; none: one for each core."
    )
    vectors: str | None = Field(
        None,
        json_schema_extra=only(level="word"),
        description="level=word: pretrained vectors that the embeddings start from, word2vec or GloVe text, or .npz.",
    )
    direction: Literal["forward", "backward"] = Field("forward", description="Write left to right, or right to left.")


class GenerateTraining(ForcingSettings, TrainSettings):
    """Training on a stream: truncated backpropagation."""

    k1: int = Field(100, ge=1, description="Steps between updates.")
    k2: int | None = Field(None, ge=1, description="Steps that gradients go back; none: k1.")
    vary_k1: bool = Field(
        False,
        json_schema_extra=CARRIED,
        description="Draw the steps anew for each update: about k1, at times half; lr follows (AWD-LSTM).",
    )
    stateful: bool = Field(
        True,
        json_schema_extra=CARRIED,
        description="Carry the state from one window to the next; false, and a Transformer's: windows stand alone.",
    )


class GenerateConfig(Section):
    """A config of `generate`."""

    task: Literal["generate"] = Field("generate", description="What the config is for.")
    data: DataSettings = DataSettings()
    model: LanguageModelSettings = LanguageModelSettings()
    train: GenerateTraining = GenerateTraining()


def sized(config: GenerateConfig) -> LanguageModelSettings:
    """The model's settings; a Transformer sees, where nothing is said, as far as a training window."""
    model = config.model
    if model.kind != "transformer" or model.context is not None:
        return model
    return model.model_copy(update={"context": config.train.k1})
