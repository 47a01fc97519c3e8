"""Texts from standard input, line by line: plain lines, or a table recognised by its first line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from unrolled.config.stored import parsed
from unrolled.data.readers.tables.column_names import column_key, column_named, find_column, looks_like_names
from unrolled.data.readers.tables.quoted import SEPARATORS, quoted_cells, streamed_rows
from unrolled.data.readers.tables.records import names_in, value_of
from unrolled.errors import UserError, note

NAME = "Standard input"
_ONE_WORD = re.compile(r"\w*")


def piped_texts(lines: Iterable[str], column: str | None, role: str, beside: str) -> Iterator[str]:
    """The texts of lines as they arrive: one column of a table with a header or of JSON objects, else the lines.

    The first line decides. A note reports the format if it is not plain lines, or if the lines look like a table
    without a header.
    """
    lines = iter(lines)
    first = next(lines, None)
    if first is None:
        return
    place = f"{NAME}, line 1"
    every = chain([first], lines)
    if (record := _object(first)) is not None and (name := _name_in(record, column, role, place)) is not None:
        note(f"{NAME} is JSON, an object on each line: {role} {name!r}.")
        yield from _objects(every, name, role)
    elif (header := header_in(first, column, role, beside)) is not None:
        separator, names = header
        yield from _columns(every, separator, _place_of(names, column, role, place), role)
    else:
        if "\t" in first or record is not None or first.startswith(("[{", "[\n")):
            kind = "JSON" if "\t" not in first else "columns between tabs"
            note(
                f"{place} looks like {kind}, but names no {role}: each line is one input. "
                f"For a table, give the file, a header, or the name of the column: --set {column_key(role)}=NAME"
            )
        yield from (line.rstrip("\r\n") for line in every)


def header_in(line: str, column: str | None, role: str, beside: str) -> tuple[str, list[str]] | None:
    """The separator and the column names, if a line is a header that names the wanted column.

    >>> header_in("id,text,label", None, "text", "label")
    (',', ['id', 'text', 'label'])
    >>> header_in("great content, body", None, "text", "label") is None
    True
    """
    line = line.rstrip("\r\n")
    for separator in sorted(SEPARATORS, key="\t,;|".index):
        if separator not in line:
            continue
        try:
            names = quoted_cells(line, separator, "")
        except UserError:
            continue
        if not looks_like_names([name for name in names if name.strip()]):
            continue
        wanted = column is not None and not column.isdecimal() and column_named(names, column) is not None
        # Sentences have commas: all names must be single words, or the names of both roles known.
        sure = separator == "\t" or all(_ONE_WORD.fullmatch(name) for name in names) or _known(names, beside)
        if sure and (wanted or _known(names, role)):
            return separator, names
    return None


def looks_like_table(line: str, column: str | None, role: str, beside: str) -> str | None:
    """The suffix of the table format that a first line looks like, or None.

    >>> looks_like_table("id|text|label", None, "text", "label"), looks_like_table("a text", None, "text", "label")
    ('.csv', None)
    """
    if (record := _object(line)) is not None:
        return ".jsonl" if _known(list(record), role) or (column or "") in names_in(record) else None
    header = header_in(line, column, role, beside)
    return None if header is None else ".tsv" if header[0] == "\t" else ".csv"


def _known(names: Sequence[str], role: str) -> bool:
    try:
        return find_column(names, role, "") is not None
    except UserError:  # several
        return True


def _object(line: str) -> dict[str, Any] | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        record = parsed(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _name_in(record: Mapping[str, Any], column: str | None, role: str, place: str) -> str | None:
    """The name of the wanted value; None if there is none."""
    if column is not None and not column.isdecimal():
        try:
            value_of(record, column)
        except KeyError:
            raise _missing(place, names_in(record), column, role) from None
        return column
    names = list(record)
    at = find_column(names, role, place)
    return None if at is None else names[at]


def _place_of(names: Sequence[str], column: str | None, role: str, place: str) -> int:
    """The position of the wanted column in a header."""
    if column is not None and column.isdecimal() and 1 <= int(column) <= len(names):
        at: int | None = int(column) - 1
    else:
        at = find_column(names, role, place) if column is None else column_named(names, column)
    if at is None:
        raise _missing(place, names, str(column), role)
    note(f"{place} is a header; columns: {role} {names[at].strip()!r}.")
    return at


def _missing(place: str, names: Sequence[str], column: str, role: str) -> UserError:
    shown = ", ".join(name.strip() for name in names)
    return UserError(
        f"{place} has no column {column!r}.", f"It has: {shown}. Say which it is: --set {column_key(role)}=…"
    )


def _columns(lines: Iterable[str], separator: str, at: int, role: str) -> Iterator[str]:
    """One column of the rows under a header."""
    rows = _tabbed(lines) if separator == "\t" else streamed_rows(lines, separator, NAME)
    _, header = next(rows)
    for number, row in rows:
        if not row or row == [""]:
            continue
        if len(row) != len(header):
            raise UserError(
                f"{NAME}, line {number} has {len(row)} {SEPARATORS[separator]}-separated columns.",
                f"Expected {len(header)}, as in the header.",
            )
        yield row[at]


def _tabbed(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Tab-separated rows. With a quoted header, rows may be quoted; otherwise a quote is an ordinary character."""
    lines = iter(lines)
    first = next(lines, "")
    if all(cell.startswith('"') and cell.endswith('"') for cell in first.rstrip("\r\n").split("\t")):
        yield from streamed_rows(chain([first], lines), "\t", NAME)
        return
    for number, line in enumerate(chain([first], lines), 1):
        yield number, line.rstrip("\r\n").split("\t")


def _objects(lines: Iterable[str], name: str, role: str) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        record, place = _object(line), f"{NAME}, line {number}"
        if record is None:
            raise UserError(f"{place} is not a JSON object.", "Expected one on each line, as on the first.")
        try:
            value = value_of(record, name)
        except KeyError:
            raise _missing(place, names_in(record), name, role) from None
        text = " ".join(map(str, value)) if isinstance(value, list) else "" if value is None else value
        if not isinstance(text, str):
            raise UserError(f"{place}: the {role} is {type(text).__name__}.", "Expected a text.")
        yield text
