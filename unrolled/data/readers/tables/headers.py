"""Positions of the wanted columns of a table, and detection of its header."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from unrolled.data.readers.tables.column_names import column_key, column_named, find_columns, looks_like_names, our_name
from unrolled.data.readers.tables.languages import language_pair
from unrolled.errors import UserError, note

Lines = Sequence[tuple[int, list[str]]]
"""The number of each line, and its cells."""


@dataclass(frozen=True)
class Wanted:
    """The columns wanted from a table."""

    path: Path
    columns: Sequence[str | None]
    roles: Sequence[str]
    beside: Sequence[str] = ()
    keep: Sequence[str] = ()
    alike: str = ""  # a regular expression: columns with such names are kept too
    places: Sequence[int] | None = None  # columns of the roles in a file without header, from 1; None: in their order

    def further(self, names: Iterable[str]) -> list[str]:
        """The names of the columns that are kept for what they are called."""
        return [name for name in names if self.alike and re.fullmatch(self.alike, name.strip().lower())]

    @property
    def numbers(self) -> list[int | None]:
        """The columns that are selected by number."""
        return [int(c) if c is not None and c.isdecimal() else None for c in self.columns]

    def place_of(self, index: int) -> int:
        return index + 1 if self.places is None else self.places[index]

    def described(self, names: Sequence[str], positions: Sequence[int]) -> str:
        """Role and name of each column, for messages."""
        parts = zip(self.roles, positions, strict=True)
        return ", ".join(f"{role} {names[at].strip()!r}" for role, at in parts if at < len(names))


@dataclass(frozen=True)
class TableLayout:
    """Positions of the wanted columns from 0, and True if the first row is a header."""

    positions: list[int]
    header: bool


def table_layout(wanted: Wanted, rows: Lines, *, named_only: bool) -> TableLayout:
    """Find the columns and decide whether there is a header.

    named_only: unspecified columns must have names, as in a .csv; otherwise they may be at their usual positions.
    """
    numbers, columns, roles = wanted.numbers, wanted.columns, wanted.roles
    line, names = rows[0] if rows else (1, [])
    place = f"{wanted.path}:{line}"
    asked = [
        n - 1 if n else None if c is None else _position_of(names, c, role, place)
        for n, c, role in zip(numbers, columns, roles, strict=True)
    ]
    by_name = any(n is None and c is not None for n, c in zip(numbers, columns, strict=True))
    taken = [at for at in asked if at is not None]
    open_roles = [i for i, at in enumerate(asked) if at is None]
    if not open_roles and not by_name:
        return _numbered(wanted, names, taken, place)
    wanted_roles = [roles[i] for i in open_roles]
    certain = by_name or named_only  # that there is a header
    found = dict(zip(open_roles, _find(rows, wanted_roles, taken, place, certain=certain), strict=True))
    complete = bool(rows) and all(at is not None for at in found.values())
    # A row that names two roles is a header. The name of one role may be a value, and so may "it" and "es".
    plain = len(found) > 1 and not language_pair(names)
    if not (certain or (complete and (plain or _looks_like_header(rows)))):
        _check_no_names(wanted, rows, place)
        return TableLayout([wanted.place_of(i) - 1 if at is None else at for i, at in enumerate(asked)], header=False)
    positions, missing = [], []
    for i, at in enumerate(asked):
        here = at if at is not None else found[i]
        usual = wanted.place_of(i) - 1
        if here is None and not named_only and usual not in taken and usual < len(names):
            here = usual
        if here is None:
            missing.append(i)
        else:
            positions.append(here)
    if len(missing) > 1:
        raise _no_names(wanted, missing, place, names)
    if missing:
        raise _no_column(place, names, our_name(roles[missing[0]]), roles[missing[0]])
    ours = all(at is None or names[at].strip() == our_name(roles[i]) for i, at in found.items())
    if not (ours and (named_only or by_name)):
        _report(wanted, names, positions, place)
    return TableLayout(positions, header=True)


def _find(rows: Lines, roles: Sequence[str], taken: Sequence[int], place: str, *, certain: bool) -> list[int | None]:
    """`find_columns` in the first row. Unless it is `certain` to be a header, ambiguous names may be values."""
    names = rows[0][1] if rows else []
    try:
        return find_columns(names, roles, place, taken)
    except UserError:
        if certain or _looks_like_header(rows):
            raise
        return [None] * len(roles)


def _numbered(wanted: Wanted, names: Sequence[str], positions: list[int], place: str) -> TableLayout:
    """All columns are selected by number: the first row is a header if it names all roles."""
    if not names:
        return TableLayout(positions, header=False)
    try:
        header = None not in find_columns(names, wanted.roles, place)
    except UserError:  # names are ambiguous; the numbers decide
        at = [names[i : i + 1] for i in positions]
        header = all(find_columns(cell, [role], place)[0] == 0 for cell, role in zip(at, wanted.roles, strict=True))
    if header:
        _report(wanted, names, positions, place)
    return TableLayout(positions, header)


def _report(wanted: Wanted, names: Sequence[str], positions: Sequence[int], place: str) -> None:
    """Report the columns that are read: their names are not our own, or the header is unexpected."""
    note(f"{place} is a header; columns: {wanted.described(names, positions)}.")


def _looks_like_header(rows: Lines) -> bool:
    """True if the first row looks like names that do not occur as values of their columns."""
    names = rows[0][1]
    if len(rows) < 2 or not looks_like_names([name for name in names if name.strip()]):
        return False
    return all(name not in {row[i] for _, row in rows[1:] if i < len(row)} for i, name in enumerate(names))


def _check_no_names(wanted: Wanted, rows: Lines, place: str) -> None:
    """Reject a first row that names some of the columns but not the others: it is hardly an example."""
    if not rows or len(rows[0][1]) < 2:
        return
    names, roles = rows[0][1], [*wanted.roles, *wanted.beside]
    places = _find(rows, roles, (), place, certain=False)
    found = {role: at for role, at in zip(roles, places, strict=True) if at is not None}
    if not found or not _looks_like_header(rows):
        return
    keys = [column_key(role) for role in wanted.roles if role not in found]
    missing = " and ".join(role for role in wanted.roles if role not in found)
    if not keys:
        return
    numbers = " ".join(f"--set {column_key(role)}={wanted.place_of(i)}" for i, role in enumerate(wanted.roles))
    raise UserError(
        f"{place} looks like a header ({', '.join(name.strip() for name in names)}), but no name fits the "
        f"{missing} column.",
        f"Say it: {' '.join(f'--set {key}=NAME' for key in keys)}. If it is an example: {numbers}",
    )


def _position_of(names: Sequence[str], column: str, role: str, place: str) -> int:
    stripped = [name.strip() for name in names]
    if stripped.count(column) > 1:
        raise UserError(f"{place} has {stripped.count(column)} columns {column!r}.", "Give each a different name.")
    at = column_named(names, column)
    if at is None:
        raise _no_column(place, names, column, role)
    return at


def _no_column(place: str, names: Sequence[str], column: str, role: str) -> UserError:
    shown = ", ".join(name.strip() for name in names)
    return UserError(
        f"{place} has no column {column!r}.",
        f"Its first row: {shortened(shown, 200)}. Say which it is, by its name there or its number: "
        f"--set {column_key(role)}=…",
    )


def _no_names(wanted: Wanted, missing: Sequence[int], place: str, names: Sequence[str]) -> UserError:
    """The error for several missing columns: the file may have no header, or other names."""
    roles = [wanted.roles[i] for i in missing]
    numbers = " ".join(f"--set {column_key(wanted.roles[i])}={wanted.place_of(i)}" for i in missing)
    return UserError(
        f"{place} has no column {' and no column '.join(repr(our_name(role)) for role in roles)}.",
        f"Its first row: {shortened(', '.join(name.strip() for name in names), 200)}. Say which they are, by name, "
        f"or by number where there is no header, for example: {numbers}",
    )


def kept_at(wanted: Wanted, names: Sequence[str], width: int, column: str) -> int:
    """The position of a column to keep."""
    at = column_named(names, column)
    if at is not None:
        return at
    if column.isdecimal() and 1 <= int(column) <= width:
        return int(column) - 1
    shown = ", ".join(names) if names else f"{width} columns without names: give a number"
    raise UserError(f"{wanted.path} has no column {column!r} to keep.", f"It has: {shown}.")


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
