"""Tables of examples: tab- or comma-separated, JSON lines, Parquet; columns by name or by number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from unrolled.config.stored import parsed
from unrolled.data.parquet import reading_parquet
from unrolled.data.quoted import SEPARATORS, quoted_rows, separator_of
from unrolled.data.text import read_lines, read_text
from unrolled.errors import UserError, note, unknown_name

SUFFIXES = (".tsv", ".txt", ".csv", ".jsonl", ".parquet")
KEYS = {"captions": "caption_column", "file": "input_column"}  # of the config; otherwise data.text_column is for `text`


@dataclass(frozen=True)
class Row:
    """The wanted values of one example, and where it stands."""

    values: tuple[Any, ...]  # text; JSON and Parquet may give lists and numbers too
    place: str  # file:line


def read_table(
    path: str | Path, columns: Sequence[str | None], defaults: Sequence[str], also: Sequence[str] = ()
) -> list[Row]:
    """The values of the named columns in every row.

    A column is a name, or a number from 1 on. Where it is None, a file without names (.tsv, .txt) has the columns in
    the order of `defaults`, and the others have columns of those names. A .tsv has a first line of names if a column
    is asked for by name, or if it has the `defaults` in their places. `.gz` may follow every ending but Parquet's.
    `also` are endings of files that the caller reads itself, for the error about one that nobody does.
    """
    path = Path(path)
    suffix = suffix_of(path, also)
    if suffix in (".tsv", ".txt"):
        chosen = [str(i + 1) if c is None else c for i, c in enumerate(columns)]
        rows = _separated(path, chosen, defaults, "\t")
    else:
        chosen = [d if c is None else c for c, d in zip(columns, defaults, strict=True)]
        if suffix == ".csv":
            rows = _separated(path, chosen, defaults)
        else:
            rows = (_json_lines if suffix == ".jsonl" else _parquet)(path, chosen)
    found = list(rows)
    if not found:
        raise UserError(f"{path} holds no example.", "Give a file with at least one row.")
    return found


def suffix_of(path: Path, also: Sequence[str] = ()) -> str:
    """The ending that tells a table's kind, without .gz."""
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if suffix not in SUFFIXES:
        raise unknown_name("kind of file", path.name, [*SUFFIXES, *also])
    return suffix


def read_texts(path: str | Path, column: str | None, name: str, place: int) -> list[str]:
    """One column of a table, to be answered; the lines of any other file.

    Where the `column` is not said, it is that of the `name`, and between tabs the one in the usual `place`. A .txt is
    a table if each of its lines has a tab.
    """
    path = Path(path)
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if suffix not in SUFFIXES:
        return read_lines(path)
    if suffix in (".tsv", ".txt"):
        lines = read_lines(path)
        tabs = ["\t" in line for line in lines if line.strip()]
        if not any(tabs) or (suffix == ".txt" and not all(tabs)):
            return lines
        column = column or str(place)
    texts = []
    for row in read_table(path, [column], [name]):
        text = " ".join(map(str, row.values[0])) if isinstance(row.values[0], list) else row.values[0]
        if not isinstance(text, str):
            raise UserError(f"{row.place}: the {name} is {type(text).__name__}.", "Expected a text.")
        texts.append(text)
    return texts


def _separated(
    path: Path, columns: Sequence[str], defaults: Sequence[str], separator: str | None = None
) -> Iterator[Row]:
    """Rows of text; with tabs nothing is quoted, with what a .csv has as in RFC 4180."""
    text = read_text(path)
    if separator is None:
        separator = separator_of(text.lstrip("\n").split("\n", 1)[0])
        lines = quoted_rows(text, separator, str(path))
    else:
        lines = ((number, line.split("\t")) for number, line in enumerate(text.split("\n"), 1))
    rows: Iterator[tuple[int, list[str]]] = (one for one in lines if one[1] and one[1] != [""])
    numbers = [int(c) if c.isdecimal() else None for c in columns]
    if 0 in numbers:
        raise UserError("A column is counted from 1, got 0.", "Give its number, or its name where the file has names.")
    width = 0
    first, names = next(rows, (1, []))
    cells = [name.strip() for name in names]
    if None in numbers:
        wanted = zip(numbers, columns, defaults, strict=True)
        numbers = [n or _position(path, first, cells, column, default) for n, column, default in wanted]
        width = len(names)
    elif [cells[n - 1].lower() if n and n <= len(cells) else "" for n in numbers] == list(defaults):
        note(f"{path}:{first} names the columns: it is no example.")
        width = len(names)
    else:
        rows = chain([(first, names)] if names else [], rows)
    least = max(n for n in numbers if n is not None)
    for number, row in rows:
        width = width or len(row)
        if len(row) != width or len(row) < least:
            kind = SEPARATORS[separator]
            found = f"no {kind}" if len(row) == 1 else f"{len(row)} {kind}-separated columns"
            raise UserError(
                f"{path}:{number} has {found}: {_short(separator.join(row))}.",
                f"Expected {max(width, least)} columns, as in every row.",
            )
        yield Row(tuple(row[n - 1] for n in numbers if n is not None), f"{path}:{number}")


def _position(path: Path, line: int, names: list[str], column: str, default: str) -> int:
    if names.count(column) > 1:
        raise UserError(f"{path}:{line} has {names.count(column)} columns {column!r}.", "Give each a name of its own.")
    if column not in names:
        key = f"data.{KEYS.get(default, f'{default}_column')}"
        raise UserError(
            f"{path}:{line} has no column {column!r}.",
            f"Its first row: {', '.join(names)}. Say which it is, by its name there or its number: {key}.",
        )
    return names.index(column) + 1


def _json_lines(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = parsed(line)
        except ValueError as error:
            raise UserError(f"{path}:{number} is not JSON: {error}.", "Expected one object on each line.") from None
        if not isinstance(record, dict):
            raise UserError(f"{path}:{number} is {type(record).__name__}.", "Expected one object on each line.")
        for column in columns:
            if column not in record:
                raise UserError(f"{path}:{number} has no {column!r}.", f"It has: {', '.join(map(str, record))}.")
        yield Row(tuple(record[column] for column in columns), f"{path}:{number}")


def _parquet(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    import pyarrow.parquet

    with reading_parquet(path):
        file = pyarrow.parquet.ParquetFile(path)
        for column in columns:
            if column not in file.schema_arrow.names:
                raise UserError(f"{path} has no column {column!r}.", f"It has: {', '.join(file.schema_arrow.names)}.")
        number = 0
        for part in file.iter_batches(columns=list(columns)):
            for values in zip(*(part.column(column).to_pylist() for column in columns), strict=True):
                number += 1
                yield Row(tuple(values), f"{path}:{number}")


def _short(text: str, most: int = 60) -> str:
    return repr(text if len(text) <= most else text[: most - 1] + "…")
