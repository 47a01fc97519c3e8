"""The config of `tag`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from unrolled.config import Section, but, only
from unrolled.data.readers.tagged.frame_tables import FrameColumns
from unrolled.data.readers.tagged.frames import frame_files, holds_frames, is_frame_table
from unrolled.data.readers.tagged.read_sentences import format_of
from unrolled.data.readers.tagged.sentences import Columns
from unrolled.errors import UserError
from unrolled.models.tagger import TEXT, TaggerSettings
from unrolled.tasks.tag.columns import columns_of, features_of, frame_columns_of
from unrolled.training import TrainSettings


class TagData(Section):
    """The data: CoNLL-U, columns as in CoNLL-2000 and 2003, JSON lines, Parquet; or frames in .npz and .csv files."""

    train: str | None = Field(
        None,
        description="Sentences with tags; frames with labels, .csv, .npz or a folder of them; none: source code of "
        "Python's own library.",
    )
    valid: str | None = Field(None, description="A file to validate on; none: a part of the training sentences.")
    valid_fraction: float = Field(
        0.1,
        gt=0,
        lt=1,
        json_schema_extra=only(valid=None, train=but(None)),
        description="How large a part, if there is no valid file.",
    )
    column: Literal["upos", "xpos", "feats", "deprel", "lemma", "head", "deps", "misc"] = Field(
        "upos", description="CoNLL-U: the column to learn."
    )
    word_column: int | str | None = Field(None, description="Other files: where words are; none: column 1, tokens.")
    tag_column: int | str | None = Field(None, description="Other files: where tags are; none: the last column, tags.")
    sequence_column: int | str | None = Field(
        None,
        description="Frames in .csv: what tells sequences apart; none: a usual name such as sequence, or one sequence.",
    )
    tag_names: str | list[str] | None = Field(
        None,
        description="JSON lines, Parquet, frames: the names of tags that are whole numbers, in their order: a list, "
        "text with commas, or a file; none: those in the file's metadata.",
    )
    feature_columns: int | str | list[int | str] = Field(
        [],
        description="Further columns for the model to read, such as parts of speech: numbers, or names; of frames in "
        ".csv the columns of a frame, none: all others.",
    )
    min_count: int = Field(
        1, ge=1, json_schema_extra=TEXT, description="Rarer words are unknown, and known by their letters only."
    )
    lowercase: bool = Field(
        True, json_schema_extra=TEXT, description="Look words up in lower case; their letters are read as they are."
    )
    vectors: str | None = Field(
        None, json_schema_extra=TEXT, description="Pretrained word vectors: word2vec or GloVe text, or .npz."
    )

    @property
    def features(self) -> tuple[str, ...]:
        """The feature columns as a list of texts; in one text commas part them."""
        return features_of(self)

    @property
    def columns(self) -> Columns:
        return columns_of(self)

    @property
    def frame_columns(self) -> FrameColumns:
        return frame_columns_of(self)


class TagConfig(Section):
    """A config of `tag`."""

    task: Literal["tag"] = Field("tag", description="What the config is for.")
    data: TagData = TagData()
    model: TaggerSettings = TaggerSettings()
    train: TrainSettings = TrainSettings()


def check_columns(settings: TagData, *, inherited: bool) -> None:
    """An error for a key about columns that none of the files has; `data.column` may be `inherited` from a model."""
    given = [key for key in ("word_column", "tag_column", "sequence_column") if getattr(settings, key) is not None]
    if settings.column != "upos" and not inherited:
        given.append("column")
    if settings.train is None and settings.features:
        raise _does_not_apply(settings, "feature_columns", "There is no file to train on", "Give one with data.train.")
    files = [file for file in (settings.train, settings.valid) if file is not None]
    if any(map(holds_frames, files)):
        _check_for_frames(settings, files, given)
        return
    if (
        settings.tag_names is not None
        and files
        and all(format_of(Path(file)) in ("conllu", "columns") for file in files)
    ):
        raise _does_not_apply(
            settings, "tag_names", f"The tags of {files[0]} are texts", "Leave it out: it names tags that are numbers."
        )
    conllu = [format_of(Path(file)) == "conllu" for file in files] if given else []
    for key in given:
        if not files:
            raise _does_not_apply(settings, key, "There is no file to train on", "Give one with data.train.")
        if key == "sequence_column":
            fix = "Leave it out: it is for frames in .csv files."
            raise _does_not_apply(settings, key, f"{files[0]} holds words", fix)
        if key == "column" and not any(conllu):
            fix = "Leave it out, and set data.tag_column if tags are not in their usual place."
            raise _does_not_apply(settings, key, f"{files[0]} is not CoNLL-U", fix)
        if key != "column" and all(conllu):
            fix = "Leave it out: words are in the column form, and data.column says which one is learnt."
            raise _does_not_apply(settings, key, f"{files[0]} is CoNLL-U", fix)


def _check_for_frames(settings: TagData, files: list[str], given: list[str]) -> None:
    """An error for a key about words, or about columns that none of the files has, where the files hold frames."""
    tables = any(is_frame_table(one) for file in files for one in frame_files(file))
    apply = ("tag_column", "sequence_column", "feature_columns") if tables else ()
    learnt = "the column of classes is" if tables else "`labels` are"
    for key in [*given, *(key for key in ("feature_columns", "vectors") if getattr(settings, key))]:
        if key not in apply:
            fix = f"Leave it out: {learnt} what is learnt."
            raise _does_not_apply(settings, key, f"{files[0]} holds frames", fix)


def _does_not_apply(settings: TagData, key: str, why: str, fix: str) -> UserError:
    return UserError(f"{why}: data.{key}={getattr(settings, key)!r} does not apply.", fix)
