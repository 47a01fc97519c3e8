"""Tables of examples: tab- or comma-separated, JSON lines, Parquet; columns by name or by number."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unrolled.data.text import read_text
from unrolled.errors import UserError, unknown_name
from unrolled.text.files import reading

SUFFIXES = (".tsv", ".txt", ".csv", ".jsonl", ".parquet")


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
    is asked for by name. `.gz` may follow every ending but Parquet's. `also` are endings of files that the caller reads
    itself, for the error about one that nobody does.
    """
    path = Path(path)
    suffix = suffix_of(path, also)
    if suffix in (".tsv", ".txt"):
        chosen = [str(i + 1) if c is None else c for i, c in enumerate(columns)]
        rows = _separated(path, chosen, "\t")
    else:
        chosen = [d if c is None else c for c, d in zip(columns, defaults, strict=True)]
        readers = {".csv": _comma_separated, ".jsonl": _json_lines, ".parquet": _parquet}
        rows = readers[suffix](path, chosen)
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


def _comma_separated(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    return _separated(path, columns, ",")


def _separated(path: Path, columns: Sequence[str], separator: str) -> Iterator[Row]:
    """Rows of text; with tabs nothing is quoted, with commas as in RFC 4180."""
    text = read_text(path)
    if separator == "\t":
        lines = ((number, line.split("\t")) for number, line in enumerate(text.split("\n"), 1))
    else:
        reader = csv.reader(io.StringIO(text, newline=""))
        lines = ((reader.line_num, row) for row in reader)
    rows = ((number, row) for number, row in lines if row and row != [""])
    numbers = [int(c) if c.isdecimal() else None for c in columns]
    width = 0
    if None in numbers:
        first, names = next(rows, (1, []))
        numbers = [n or _position(path, first, names, c) for n, c in zip(numbers, columns, strict=True)]
        width = len(names)
    least = max(n for n in numbers if n is not None)
    for number, row in rows:
        width = width or len(row)
        if len(row) != width or len(row) < least:
            kind = "tab" if separator == "\t" else "comma"
            found = f"no {kind}" if len(row) == 1 else f"{len(row)} {kind}-separated columns"
            raise UserError(
                f"{path}:{number} has {found}: {_short(separator.join(row))}.",
                f"Expected {max(width, least)} columns, as in every row.",
            )
        yield Row(tuple(row[n - 1] for n in numbers if n is not None), f"{path}:{number}")


def _position(path: Path, line: int, names: list[str], column: str) -> int:
    if column not in names:
        raise UserError(
            f"{path}:{line} has no column {column!r}.",
            f"Its first row: {', '.join(names)}. Say which it is, by its name there or its number: data.…_column.",
        )
    return names.index(column) + 1


def _json_lines(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise UserError(f"{path}:{number} is not JSON: {error}.", "Expected one object on each line.") from None
        if not isinstance(record, dict):
            raise UserError(f"{path}:{number} is {type(record).__name__}.", "Expected one object on each line.")
        for column in columns:
            if column not in record:
                raise UserError(f"{path}:{number} has no {column!r}.", f"It has: {', '.join(map(str, record))}.")
        yield Row(tuple(record[column] for column in columns), f"{path}:{number}")


def _parquet(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet

    try:
        with reading(path, "Parquet file"):
            file = pyarrow.parquet.ParquetFile(path)
    except pyarrow.ArrowInvalid as error:
        raise UserError(f"{path} is not a Parquet file: {error}.") from None
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
