"""Tables of examples: tab- or comma-separated, JSON, Parquet; with columns by name, in any order, or by number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

from unrolled.data.readers.tables.column_names import ROLES, column_key, find_columns, our_name
from unrolled.data.readers.tables.headers import Wanted, kept_at, shortened, table_layout
from unrolled.data.readers.tables.quoted import (
    SEPARATORS,
    streamed_rows,
    table_separator,
    tabs_are_quoted,
    whole_rows,
    with_ends,
)
from unrolled.data.readers.tables.records import json_records, names_in, open_parquet, parquet_records, value_of
from unrolled.data.readers.tables.standard_input import looks_like_table
from unrolled.data.readers.text_lines import TextLines
from unrolled.errors import UserError, note, unknown_name
from unrolled.text.files import suffix_of

SUFFIXES = (".tsv", ".txt", ".csv", ".jsonl", ".json", ".parquet")


@dataclass(frozen=True)
class Row:
    """The wanted values of one example, its place, and the columns kept with it."""

    values: tuple[Any, ...]  # text; JSON and Parquet may give lists and numbers too
    place: str  # file:line
    kept: Mapping[str, Any] = field(default_factory=dict)


def read_table(
    path: str | Path,
    columns: Sequence[str | None],
    roles: Sequence[str],
    also: Sequence[str] = (),
    *,
    keep: Sequence[str] = (),
    beside: Sequence[str] = (),
    alike: str = "",
) -> list[Row]:
    """Read the wanted columns of every row.

    A column is a name, or a number from 1 on; None finds it by the usual names of its role (see `column_names.ROLES`).
    A .tsv or .txt without header has the columns in the order of `roles`. The first line is a header if a column is
    selected by name, or if it names all roles. In JSON and Parquet `doc.body` is a nested value. All formats but
    Parquet may be compressed (`.gz`).

    also: suffixes that the caller reads itself, for the error about an unknown suffix.
    keep: names or numbers of the columns in `Row.kept`.
    beside: roles that are not read but whose names also identify a header.
    alike: a regular expression; columns with such names are in `Row.kept` too, where a row has them.
    """
    return list(_rows(Wanted(Path(path), columns, roles, beside, keep, alike), also))


def _table_suffix(path: Path, also: Sequence[str]) -> str:
    """The suffix that names the format of a table, without .gz."""
    suffix = suffix_of(path)
    if suffix not in SUFFIXES:
        raise unknown_name("kind of file", path.name, [*SUFFIXES, *also])
    return suffix


def is_table(path: Path) -> bool:
    """True if an input file is a table: by its suffix; a .tsv with a tab, a .txt with a tab in each line."""
    suffix = suffix_of(path)
    if suffix not in (".tsv", ".txt"):
        return suffix in SUFFIXES
    tabs = ("\t" in line for line in TextLines(path) if line.strip())
    return any(tabs) if suffix == ".tsv" else all(tabs)


def read_text_column(
    path: str | Path,
    column: str | None,
    role: str,
    place: int,
    *,
    keep: Sequence[str] = (),
    beside: Sequence[str] = (),
) -> Iterator[Row]:
    """The inputs in a file, one after the other: one column of a table, or the lines of any other file.

    Without a `column`, it is found by the names of its role; in a file without header it is number `place`. A .txt is
    a table if each of its lines has a tab.
    """
    path = Path(path)
    if not is_table(path):
        if keep:
            raise UserError(f"{path} is not a table: it has no columns to keep.", "Leave --keep out, or give a table.")
        yield from _plain_lines(path, column, role, beside[0] if beside else role)
        return
    for row in _rows(Wanted(path, [column], [role], beside, keep, places=(place,))):
        value = row.values[0]
        text = " ".join(map(str, value)) if isinstance(value, list) else "" if value is None else value
        if not isinstance(text, str):
            raise UserError(f"{row.place}: the {role} is {type(text).__name__}.", "Expected a text.")
        yield Row((text,), row.place, row.kept)


def _plain_lines(path: Path, column: str | None, role: str, beside: str) -> Iterator[Row]:
    """Each line as an input; a note where the first looks like that of a table."""
    lines = enumerate(TextLines(path), 1)
    for number, line in lines:
        named = number == 1 and path.name.endswith((".tsv", ".tsv.gz"))
        if named and find_columns([line], [role], f"{path}:1")[0] == 0:
            note(f"{path}:1 is a header: {line.strip()!r} is not answered.")
            continue
        if number == 1 and (ending := looks_like_table(line, column, role, beside)):
            note(
                f"{path}:1 looks like the first line of a table ({shortened(line.strip(), 60)}), and the file is "
                "read as plain text: each line is one input. "
                f"For a table, give it a name that ends in {ending}."
            )
        yield Row((line,), f"{path}:{number}")


def _rows(wanted: Wanted, also: Sequence[str] = ()) -> Iterator[Row]:
    suffix = _table_suffix(wanted.path, also)
    read = _separated if suffix in (".tsv", ".txt", ".csv") else _records
    empty = True
    for row in read(wanted, suffix):
        empty = False
        yield row
    if empty:
        raise UserError(f"{wanted.path} holds no example.", "Give a file with at least one row.")


def _separated(wanted: Wanted, suffix: str) -> Iterator[Row]:
    """Rows of text, quoted as in RFC 4180; in tab-separated files see `tabs_are_quoted`. The file's head decides."""
    path, lines = wanted.path, TextLines(wanted.path)
    head = "\n".join(lines.head if lines.short else whole_rows(lines.head))
    separator = table_separator(head) if suffix == ".csv" else "\t"
    quoted = suffix == ".csv" or tabs_are_quoted(head)
    if quoted and suffix != ".csv":
        note(f"{path}: cells are quoted, as in a .csv; the quotes are removed.")
    first = list(_cells(head.split("\n"), separator, path, quoted=quoted))
    if 0 in wanted.numbers:
        raise UserError("A column is counted from 1, got 0.", "Give its number, or its name where the file has names.")
    layout = table_layout(wanted, first, named_only=suffix == ".csv")
    names = [cell.strip() for cell in first[0][1]] if first else []
    kept = [(name, kept_at(wanted, names if layout.header else [], len(names), name)) for name in wanted.keep]
    kept += [(name, names.index(name)) for name in wanted.further(names if layout.header else [])]
    rows = iter(first) if lines.short else _cells(lines, separator, path, quoted=quoted)
    rows = _of_one_width(path, rows, max(layout.positions) + 1, separator)
    if layout.header:
        rows = _without_header(path, rows)
    pick, nothing = itemgetter(*layout.positions), dict[str, Any]()
    alone = len(layout.positions) == 1
    for number, row in rows:
        values = (pick(row),) if alone else pick(row)
        yield Row(values, f"{path}:{number}", {name: row[at] for name, at in kept} if kept else nothing)


def _cells(lines: Iterable[str], separator: str, path: Path, *, quoted: bool) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row that is not blank, with the number of its first line."""
    if quoted:
        rows = streamed_rows(with_ends(lines), separator, str(path))
    else:
        rows = ((number, line.split("\t")) for number, line in enumerate(lines, 1))
    return (one for one in rows if one[1] and one[1] != [""])


def _without_header(path: Path, rows: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[int, list[str]]]:
    """The rows below the first, without those that repeat it."""
    _, header = next(rows)
    again, times = 0, 0
    for number, row in rows:
        if row == header:
            again, times = again or number, times + 1
        else:
            yield number, row
    if times:
        note(f"{path}:{again} repeats the header: {times} such rows are left out.")


def _of_one_width(
    path: Path, rows: Iterator[tuple[int, list[str]]], least: int, separator: str
) -> Iterator[tuple[int, list[str]]]:
    """The rows, checked to have as many columns as the first, and all wanted ones."""
    width = None
    for number, row in rows:
        width = len(row) if width is None else width
        if len(row) != width or len(row) < least:
            kind = SEPARATORS[separator]
            found = f"no {kind}" if len(row) == 1 else f"{len(row)} {kind}-separated columns"
            raise UserError(
                f"{path}:{number} has {found}: {shortened(separator.join(row), 60)!r}.",
                f"Expected {max(width, least)} columns, as in every row.",
            )
        yield number, row


def _records(wanted: Wanted, suffix: str) -> Iterator[Row]:
    """Rows of JSON or Parquet, with nested values."""
    path = wanted.path
    if suffix == ".parquet":
        schema = open_parquet(path).schema_arrow.names
        columns = _record_columns(wanted, schema, str(path), lambda name: _inside(name, schema) is not None)
        top = [_inside(name, schema) or name for name in (*columns, *wanted.keep, *wanted.further(schema))]
        records = parquet_records(path, list(dict.fromkeys(top)))
    else:
        records = json_records(path)
        first = next(records, None)
        if first is None:
            return
        names = [str(name) for name in first[1]]
        columns = _record_columns(wanted, names, first[0], lambda name: _has(first[1], name), first[1])
        records = chain([first], records)
    for place, record in records:
        values = [_value(record, column, place, role) for column, role in zip(columns, wanted.roles, strict=True)]
        kept = (*wanted.keep, *wanted.further(map(str, record)))
        yield Row(tuple(values), place, {name: _value(record, name, place, None) for name in kept})


def _record_columns(
    wanted: Wanted,
    names: Sequence[str],
    place: str,
    has: Callable[[str], bool],
    record: Mapping[str, Any] | None = None,
) -> list[str]:
    """The names to read: the selected ones, or the usual ones of the roles."""
    found = find_columns(
        names,
        [role for role, column in zip(wanted.roles, wanted.columns, strict=True) if column is None],
        place,
        [names.index(column) for column in wanted.columns if column in names],
    )
    open_ones, columns = iter(found), []
    for role, column in zip(wanted.roles, wanted.columns, strict=True):
        at = next(open_ones) if column is None else None
        name = column if column is not None else our_name(role) if at is None else names[at]
        if not has(name):
            what = f"no {name!r}" if record is not None else f"no column {name!r}"
            shown = ", ".join(names_in(record) if record is not None else names)
            fix = f" Say which it is: --set {column_key(role)}=…" if role in ROLES else ""
            raise UserError(f"{place} has {what}.", f"It has: {shortened(shown, 200)}.{fix}")
        columns.append(name)
    if any(at is not None and names[at] != our_name(r) for at, r in zip(found, _open(wanted), strict=True)):
        told = ", ".join(f"{role} {name!r}" for role, name in zip(wanted.roles, columns, strict=True))
        note(f"{wanted.path}: columns: {told}.")
    for name in wanted.keep:
        if not has(name):
            shown = ", ".join(names_in(record) if record is not None else names)
            raise UserError(f"{place} has no column {name!r} to keep.", f"It has: {shortened(shown, 200)}.")
    return columns


def _open(wanted: Wanted) -> list[str]:
    return [role for role, column in zip(wanted.roles, wanted.columns, strict=True) if column is None]


def _inside(name: str, columns: Sequence[str]) -> str | None:
    """The column of a Parquet file that has a name or contains it."""
    if name in columns:
        return name
    return next((column for column in columns if name.startswith(f"{column}.")), None)


def _has(record: Mapping[str, Any], name: str) -> bool:
    try:
        value_of(record, name)
    except KeyError:
        return False
    return True


def _value(record: Mapping[str, Any], name: str, place: str, role: str | None) -> Any:
    try:
        return value_of(record, name)
    except KeyError:
        if role is None:
            return None  # kept values may be missing
        raise UserError(
            f"{place} has no {name!r}.", f"It has: {shortened(', '.join(names_in(record)), 200)}."
        ) from None
