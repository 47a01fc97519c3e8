"""The columns that a tagger reads, from the data section of its config."""

from __future__ import annotations

from typing import Any

from unrolled.data.readers.tagged.frame_tables import FrameColumns
from unrolled.data.readers.tagged.sentences import Columns
from unrolled.data.readers.tagged.tag_names import parse_tag_names


def features_of(data: Any) -> tuple[str, ...]:
    """The feature columns as a list of texts; in one text commas part them."""
    given = data.feature_columns
    if isinstance(given, list):
        return tuple(map(str, given))
    return tuple(name.strip() for name in str(given).split(",") if name.strip())


def columns_of(data: Any) -> Columns:
    names = () if data.tag_names is None else tuple(parse_tag_names(data.tag_names))
    return Columns(_text(data.word_column), _text(data.tag_column), features_of(data), data.column, names)


def frame_columns_of(data: Any) -> FrameColumns:
    """The columns of frames in a table."""
    columns = columns_of(data)
    return FrameColumns(_text(data.tag_column), _text(data.sequence_column), columns.features, columns.names)


def _text(column: int | str | None) -> str | None:
    return None if column is None else str(column)
