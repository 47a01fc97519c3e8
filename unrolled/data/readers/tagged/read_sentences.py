"""Sentences with a tag for each word, from every supported format."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from unrolled.data.memory.held import rows_of, shown
from unrolled.data.readers.tables.read_table import Row, read_table
from unrolled.data.readers.tagged.columns import ColumnsFile
from unrolled.data.readers.tagged.conllu import ConlluFile
from unrolled.data.readers.tagged.sentences import USUAL, Columns, Sentence
from unrolled.data.readers.tagged.tag_names import note_unnamed_tags, stored_names, tags_of_numbers, usual_columns
from unrolled.data.readers.text import read_text
from unrolled.errors import UserError
from unrolled.text.files import suffix_of
from unrolled.text.globs import files_of

SentenceFormat = Literal["conllu", "columns", "jsonl", "parquet"]


def format_of(path: Path) -> SentenceFormat:
    """The format of a file of sentences: by its suffix, or else by its text. Rows in memory are as those of Parquet."""
    if rows_of(path) is not None:
        return "parquet"
    path = files_of(path)[0]
    ending = suffix_of(path)
    if ending == ".json":
        return "jsonl"
    if ending in (".conllu", ".jsonl", ".parquet"):
        kind: SentenceFormat = ending[1:]  # type: ignore[assignment]
        return kind
    return "conllu" if looks_like_conllu(read_text(path).split("\n")) else "columns"


def looks_like_conllu(lines: Sequence[str]) -> bool:
    """True if the first line after comments has CoNLL-U's ten columns, with a number in the first.

    >>> looks_like_conllu(["# text = Go", "1\\tGo" + "\\t_" * 8])
    True
    """
    first = next((line for line in lines if line.strip() and not line.startswith("#")), "").split("\t")
    return len(first) == 10 and first[0].split("-")[0].split(".")[0].isdecimal()


def read_sentences(path: str | Path, columns: Columns = USUAL) -> list[Sentence]:
    """The sentences of a file with their tags, of all files of a folder or a pattern, or of data in memory."""
    sentences = [sentence for file in files_of(path) for sentence in _sentences_of(file, columns)]
    if not any(len(sentence) for sentence in sentences):
        raise UserError(f"{shown(path)} holds no word.", "Give a file with at least one sentence.")
    return sentences


def _sentences_of(path: Path, columns: Columns) -> list[Sentence]:
    kind = format_of(path)
    if kind == "conllu":
        return ConlluFile.read(path).sentences(columns)
    if kind == "columns":
        return ColumnsFile.read(path).sentences(columns)
    return _of_table(path, columns)


def _of_table(path: Path, columns: Columns) -> list[Sentence]:
    """The sentences of JSON lines or Parquet, whose tags may be numbers with names."""
    words, tags = usual_columns(path, columns.words, columns.tags)
    names = (words, tags, *columns.features)
    rows = read_table(path, names, names)
    known = list(columns.names) or stored_names(path, tags)
    if known is None and any(_are_numbers(row.values[1]) for row in rows):
        note_unnamed_tags(shown(path), tags)
    return [sentence_of(row, names, tagged=True, known=known) for row in rows]


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(one, int) and not isinstance(one, bool) for one in value)


def sentence_of(
    row: Row, names: Sequence[str], *, tagged: bool = False, known: Sequence[str] | None = None
) -> Sentence:
    """A sentence from a row of lists: the words, the tags if `tagged`, the features.

    Tags that are whole numbers are indices of the `known` names, or names themselves.
    """
    given = [_list(one) for one in row.values]
    if tagged and _are_numbers(given[1]) and all(type(one) is int for one in given[1]):
        given[1] = list(tags_of_numbers(given[1], known, names[1], row.place))
    lists = [_strings(value, name, row.place) for value, name in zip(given, names, strict=True)]
    for name, values in zip(names, lists, strict=True):
        if len(values) != len(lists[0]):
            raise UserError(
                f"{row.place} has {len(lists[0])} {names[0]} and {len(values)} {name}.", "Expected one for each."
            )
    tags, features = (lists[1], lists[2:]) if tagged else (None, lists[1:])
    return Sentence(lists[0], tags, tuple(features), row.place)


def _list(value: Any) -> Any:
    """A tuple, an array of NumPy or a series of Polars as a list."""
    return value.tolist() if isinstance(value, np.ndarray) else list(value) if isinstance(value, tuple) else value


def _strings(value: Any, name: str, place: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise UserError(f"{place}: {name} is not a list of texts.", f'Expected for example {{"{name}": ["a", "b"]}}.')
    return tuple(value)
