"""The config of `classify`."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, field_validator

from unrolled.config import Section, but, only
from unrolled.models.classifier import NETWORK, TEXT, ClassifierSettings
from unrolled.tasks.shared.reader import LEVEL
from unrolled.training import ExampleTraining
from unrolled.training.settings import AVERAGE

LABELS = only(kind="label")
TABLE = only({"inputs": "text", "train": but(None)}, {"inputs": "text", "valid": but(None)})


class ClassifyData(Section):
    """The data, and its tokens."""

    train: str | None = Field(
        None, description="A table with text and label (.tsv, .csv, .jsonl, …); frames in .npz; none: docstrings."
    )
    valid: str | None = Field(None, description="A file to validate on; none: a part of the training examples.")
    valid_fraction: float = Field(
        0.1, gt=0, lt=1, json_schema_extra=only(valid=None), description="How large a part, if there is no valid file."
    )
    text_column: str | None = Field(
        None,
        json_schema_extra=TABLE,
        description="Name or number of the text's column; none: by its usual names, 2 in a .tsv without names.",
    )
    label_column: str | None = Field(
        None,
        json_schema_extra=TABLE,
        description="Name or number of the label's column; none: by its usual names, 1 in a .tsv without names.",
    )
    kind: Literal["label", "number"] = Field(
        "label", description="What an answer is; number: the label column holds numbers, and errors are measured."
    )
    multi_label: bool = Field(
        False, json_schema_extra=LABELS, description="Any number of labels each, separated by label_separator."
    )
    label_separator: str = Field(
        ",", min_length=1, json_schema_extra=only(multi_label=True), description="Between the labels of one example."
    )
    old_labels: Literal["keep", "drop"] = Field(
        "keep",
        json_schema_extra=only(init=True),
        description="With --init: labels of the old model that the new examples do not have.",
    )
    level: LEVEL = Field(
        "auto",
        json_schema_extra=TEXT,
        description="A token is a word with its letters, a character, …; auto: word, char for one or two words.",
    )
    lowercase: bool = Field(
        True,
        json_schema_extra=only(inputs="text", level="word"),
        description="Look words up in lower case; their letters are read as they are.",
    )
    min_count: int = Field(
        2,
        ge=1,
        json_schema_extra=only(inputs="text", level=("word", "symbols")),
        description="Rarer words are unknown, and known by their letters only.",
    )
    max_size: int | None = Field(
        None, ge=2, json_schema_extra=TEXT, description="Largest vocabulary; none: everything, 8000 for bpe."
    )
    vectors: str | None = Field(
        None,
        json_schema_extra=only(inputs="text", level="word"),
        description="level=word: pretrained vectors, word2vec or GloVe text, or .npz.",
    )


class ClassifyTraining(ExampleTraining):
    """Training on separate sequences."""

    usual_epochs: ClassVar[int] = 10
    usual_updates: ClassVar[int] = 2000
    lr: float = Field(4e-3, gt=0, description="Learning rate at its highest; lr / 3 if the loss jumps about.")
    average: float = Field(
        0.99,
        ge=0,
        lt=1,
        json_schema_extra=AVERAGE,
        description="Decay of a running mean of the weights, which is evaluated and kept; 0: none.",
    )
    k2: int | None = Field(
        None,
        ge=1,
        json_schema_extra=only({"model.kind": "recurrent", "model.pool": "last", "model.bidirectional": False}),
        description="Steps that gradients go back from the end of each sequence, all of which is read; none: all.",
    )
    class_weights: str = Field(
        "none",
        json_schema_extra=only({"data.kind": "label"}),
        description="balanced: every class counts as much as any other, however rare it is; or the weights of labels, "
        "such as spam=5,ham=1; none: all examples count the same.",
    )
    focal_gamma: float = Field(
        0.0,
        ge=0,
        json_schema_extra=only({"data.kind": "label", "model.kind": NETWORK}),
        description="Focal loss (Lin et al. 2017): examples count (1 − p)^focal_gamma, so that sure ones count less; 2 "
        "is usual, 0: cross-entropy.",
    )
    calibrate: bool = Field(
        True,
        json_schema_extra=only({"data.kind": "label"}),
        description="Fit the temperature of the probabilities on the validation part (Guo et al. 2017), unless there "
        "are class_weights.",
    )
    thresholds: Literal["fitted"] | float = Field(
        0.5,
        json_schema_extra=only({"data.multi_label": True}),
        description="Probability from which on a label applies; fitted: for each label that of the highest F1 on the "
        "validation part.",
    )
    label_smoothing: float = Field(
        0.0,
        ge=0,
        lt=1,
        json_schema_extra=only({"data.kind": "label", "data.multi_label": False, "model.kind": NETWORK}),
        description="Share of certainty given to all classes alike.",
    )

    @field_validator("thresholds")
    @classmethod
    def _probability(cls, value: str | float) -> str | float:
        if not isinstance(value, str) and not 0 <= value <= 1:
            raise ValueError("expected a probability from 0 to 1, or fitted")
        return value


class ClassifyConfig(Section):
    """A config of `classify`."""

    task: Literal["classify"] = Field("classify", description="What the config is for.")
    data: ClassifyData = ClassifyData()
    model: ClassifierSettings = ClassifierSettings()
    train: ClassifyTraining = ClassifyTraining()
