"""The config of `recognize`."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from unrolled.config import Section, but, only
from unrolled.data.signals.augment import LineChanges, SpectrumChanges
from unrolled.models.recognizer import RecognizerSettings
from unrolled.training import ExampleTraining
from unrolled.training.settings import AVERAGE

AUDIO, LINE = only(kind="audio"), only(kind="line")


class RecognizeData(Section):
    """The data, and its labels."""

    train: str | None = Field(
        None,
        description="file TAB transcript (.tsv); .csv, .jsonl, .parquet; frames in .npz; none: strings of digits made "
        "from scikit-learn's scans.",
    )
    valid: str | None = Field(None, description="A file to validate on; none: a part of the training examples.")
    valid_fraction: float = Field(
        0.1,
        gt=0,
        lt=1,
        json_schema_extra=only(valid=None, train=but(None)),
        description="How large a part, if there is no valid file.",
    )
    input_column: str | None = Field(
        None,
        json_schema_extra=only(kind=("audio", "line")),
        description="Name or number of the files' column; none: 1 in .tsv, file.",
    )
    text_column: str | None = Field(
        None,
        json_schema_extra=only(kind=("audio", "line")),
        description="Name or number of the transcripts'; none: 2 in .tsv, text.",
    )
    kind: Literal["auto", "audio", "line", "frames"] = Field(
        "auto", description="Recordings, pictures of lines, or frames; auto: by the files' endings."
    )
    level: Literal["char", "symbols"] = Field(
        "char", description="A label is a character, or a symbol between blanks, as phonemes are written."
    )
    lowercase: bool = Field(False, description="Read and write everything in lower case.")
    max_steps: int = Field(
        6000, ge=1, description="Training examples with more frames (100 a second) or columns are left out."
    )
    too_short: str | None = Field(
        None, description="A .tsv file to write: training examples too short for their transcripts; none: no file."
    )
    memory: float = Field(2.0, ge=0, description="GiB of features kept in memory; the rest is made again every epoch.")
    sample_rate: int | None = Field(
        None,
        ge=2000,
        json_schema_extra=AUDIO,
        description="audio: samples a second; none: that of most recordings, 16,000 at the most.",
    )
    bands: int = Field(80, ge=1, json_schema_extra=AUDIO, description="audio: mel bands of the spectrogram.")
    deltas: int = Field(
        0,
        ge=0,
        le=2,
        json_schema_extra=AUDIO,
        description="audio: slopes over time beside them: 1, or 2 for slopes of slopes.",
    )
    center_bands: bool | None = Field(
        None,
        json_schema_extra=AUDIO,
        description="audio: take each band's mean over the recording away; none: unless the model is causal.",
    )
    height: int | None = Field(
        None,
        ge=8,
        json_schema_extra=LINE,
        description="line: pixels from top to bottom that every line is scaled to; none: 48, for low ones less.",
    )
    straighten: bool = Field(
        True, json_schema_extra=LINE, description="line: bring the line to the middle and its letters to one size."
    )


class RecognizeTraining(ExampleTraining):
    """Training on recordings, lines or frames."""

    usual_epochs: ClassVar[int] = 15
    usual_updates: ClassVar[int] = 1500
    batch_size: int = Field(16, ge=1, description="Examples side by side.")
    lr: float = Field(3e-3, gt=0, description="Learning rate at its highest; lr / 3 if the loss jumps about.")
    warmup_steps: int = Field(100, ge=0, description="Updates over which the learning rate rises to lr.")
    average: float = Field(
        0.99,
        ge=0,
        lt=1,
        json_schema_extra=AVERAGE,
        description="Decay of a running mean of the weights, which is evaluated and kept; 0: none.",
    )
    augment: bool = Field(
        True,
        json_schema_extra=only({"data.kind": ("audio", "line")}),
        description="Change every recording and line a little, in each epoch anew.",
    )
    spectrum: SpectrumChanges = Field(
        SpectrumChanges(),
        json_schema_extra=only({"data.kind": "audio", "augment": True}),
        description="How recordings are changed.",
    )
    line: LineChanges = Field(
        LineChanges(),
        json_schema_extra=only({"data.kind": "line", "augment": True}),
        description="How lines are changed.",
    )


class RecognizeConfig(Section):
    """A config of `recognize`."""

    task: Literal["recognize"] = Field("recognize", description="What the config is for.")
    data: RecognizeData = RecognizeData()
    model: RecognizerSettings = RecognizerSettings()
    train: RecognizeTraining = RecognizeTraining()
