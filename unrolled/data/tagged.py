"""Reading sentences with a tag for each word, whatever kind of file they are in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from unrolled.data.columns import ColumnsFile
from unrolled.data.conllu import ConlluFile
from unrolled.data.sentences import USUAL, Columns, Sentence
from unrolled.data.tables import Row, read_table
from unrolled.data.text import read_text
from unrolled.errors import UserError

SentenceFormat = Literal["conllu", "columns", "jsonl", "parquet"]


def format_of(path: str | Path) -> SentenceFormat:
    """What a file of sentences holds: told by its ending, and for any but .conllu, .jsonl and .parquet by its text."""
    path = Path(path)
    ending = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if ending == ".conllu":
        return "conllu"
    if ending == ".jsonl":
        return "jsonl"
    if ending == ".parquet":
        return "parquet"
    return "conllu" if looks_like_conllu(read_text(path).splitlines()) else "columns"


def looks_like_conllu(lines: Sequence[str]) -> bool:
    """Whether the first line that is not a comment has CoNLL-U's ten columns, and a number in the first.

    >>> looks_like_conllu(["# text = Go", "1\\tGo" + "\\t_" * 8])
    True
    """
    first = next((line for line in lines if line.strip() and not line.startswith("#")), "").split("\t")
    return len(first) == 10 and first[0].split("-")[0].split(".")[0].isdecimal()


def read_sentences(path: str | Path, columns: Columns = USUAL) -> list[Sentence]:
    """The sentences of a file with their tags."""
    kind = format_of(path)
    if kind == "conllu":
        sentences = ConlluFile.read(path).sentences(columns)
    elif kind == "columns":
        sentences = ColumnsFile.read(path).sentences(columns)
    else:
        names = (columns.words, columns.tags, *columns.features)
        rows = read_table(path, names, ("tokens", "tags", *columns.features))
        sentences = [sentence_of(row, columns) for row in rows]
    if not any(len(sentence) for sentence in sentences):
        raise UserError(f"{path} holds no word.", "Give a file with at least one sentence.")
    return sentences


def sentence_of(row: Row, columns: Columns) -> Sentence:
    """A sentence of a row that holds lists: words, tags, features."""
    names = (columns.words or "tokens", columns.tags or "tags", *columns.features)
    lists = [_strings(value, name, row.place) for value, name in zip(row.values, names, strict=True)]
    for name, values in zip(names, lists, strict=True):
        if len(values) != len(lists[0]):
            raise UserError(
                f"{row.place} has {len(lists[0])} {names[0]} and {len(values)} {name}.", "Expected one for each."
            )
    return Sentence(lists[0], lists[1], tuple(lists[2:]), row.place)


def _strings(value: Any, name: str, place: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise UserError(f"{place}: {name} is not a list of texts.", f'Expected for example {{"{name}": ["a", "b"]}}.')
    return tuple(value)
