"""Frames in .csv files: a row is a frame; columns hold its numbers, its class and its sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unrolled.data.memory.held import rows_of
from unrolled.data.memory.sources import HeldRows, is_missing
from unrolled.data.readers.tables.column_names import column_named, find_column, usual
from unrolled.data.readers.tables.number_cells import is_header, number_of, with_points
from unrolled.data.readers.tables.quoted import quoted_rows, table_separator
from unrolled.data.readers.tagged.tag_names import note_unnamed_tags, tags_of_numbers
from unrolled.data.readers.text import read_text
from unrolled.errors import UserError, note, unknown_name

TIMES = {"time", "timestamp", "date", "datetime", "frame", "frame_id", "step", "index", "t", "row", "unnamed: 0", ""}

LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class FrameColumns:
    """The columns that a user names, by name or by number from 1 on; None and (): found by their names and content."""

    tags: str | None = None
    sequence: str | None = None
    features: tuple[str, ...] = ()
    tag_names: tuple[str, ...] = ()  # of tags that are whole numbers


@dataclass(frozen=True)
class FrameRows:
    """One sequence of a table: its frames (T, D), their tags if the table has them, and its name."""

    frames: NDArray[np.float32]
    tags: tuple[str, ...] | None
    name: str | None


@dataclass(frozen=True)
class FrameTable:
    """The sequences of a .csv file, and the names of the columns with numbers."""

    columns: tuple[str, ...]
    sequences: list[FrameRows]


def read_frame_table(path: Path, columns: FrameColumns, *, tagged: bool) -> FrameTable:
    """The sequences of a .csv file with a header, or of a table in memory, in the order of their first rows."""
    table = _Table.read(path)
    path = table.path
    tag_at = table.place(columns.tags, "tag", needed=tagged)
    at = table.place(columns.sequence, "sequence", needed=columns.sequence is not None)
    row_numbers = at is not None and columns.sequence is None and len(table.column(at)) > 1
    if at is not None and row_numbers and len(set(table.column(at))) == len(table.rows):
        note(f"{path}: each row has its own {table.names[at]!r}, so it does not tell sequences apart and is left out.")
        at, ignored = None, [at]
    else:
        ignored = []
    taken = [place for place in (tag_at, at, *ignored) if place is not None]
    features = table.features(columns.features, taken)
    numbers = table.numbers(features)
    tags = None if tag_at is None else table.tags(tag_at, columns.tag_names)
    groups: dict[str, list[int]] = {}
    for row, name in enumerate([""] * len(table.rows) if at is None else table.column(at)):
        groups.setdefault(name, []).append(row)
    sequences = [
        FrameRows(numbers[rows], None if tags is None else tuple(tags[row] for row in rows), name or None)
        for name, rows in groups.items()
    ]
    return FrameTable(tuple(table.names[one] for one in features), sequences)


@dataclass(frozen=True)
class _Table:
    """The rows of a file below its header."""

    path: Path
    names: list[str]
    rows: list[list[str]]
    lines: list[int]
    before: str = ":"  # between the path and the number of a line

    @classmethod
    def of_rows(cls, rows: HeldRows) -> _Table:
        """The cells of a table in memory, as a file has them."""
        columns = [["" if is_missing(one) else str(one) for one in rows.get(at)] for at in range(len(rows.names))]
        cells = [list(row) for row in zip(*columns, strict=True)]
        return cls(Path(rows.title), list(rows.names), cells, list(range(rows.count)), ", row ")

    @classmethod
    def read(cls, path: Path) -> _Table:
        if (given := rows_of(path)) is not None:
            return cls.of_rows(given)
        text = read_text(path)
        separator = table_separator(text)
        found = [(number, row) for number, row in quoted_rows(text, separator, str(path)) if row and row != [""]]
        (first, header), *below = found
        rows = [with_points(row) if separator == ";" else row for _, row in below]
        names = [name.strip() for name in header]
        if not is_header(names, rows[:1]):
            raise UserError(
                f"{path}:{first} is no header: {', '.join(names[:4])}.", "Expected a first line with names of columns."
            )
        if not rows:
            raise UserError(f"{path} holds no frame.", "Give a file with a header and at least one row.")
        twice = next((name for name in names if name and names.count(name) > 1), None)
        if twice is not None:
            raise UserError(f"{path}:{first} has two columns {twice!r}.", "Give each a name of its own.")
        for number, row in below:
            if len(row) != len(names):
                raise UserError(f"{path}:{number} has {len(row)} cells, and the header has {len(names)}.")
        return cls(path, names, rows, [number for number, _ in below])

    def column(self, place: int) -> list[str]:
        return [row[place].strip() for row in self.rows]

    def place(self, asked: str | None, role: str, *, needed: bool) -> int | None:
        """The place of the column that is asked for, or has a usual name of the role; None: there is none."""
        found = find_column(self.names, role, str(self.path)) if asked is None else self.named(asked)
        if found is None and needed:
            if asked is not None:
                raise unknown_name("column", asked, self.names)
            raise UserError(
                f"{self.path} has no column with the class of each frame; it has {', '.join(self.names)}.",
                "Name it: --set data.tag_column=NAME",
            )
        return found

    def named(self, asked: str) -> int | None:
        """The place of a column by its name, or by its number."""
        place = column_named(self.names, asked)
        if place is None and asked.isdecimal() and 1 <= int(asked) <= len(self.names):
            return int(asked) - 1
        return place

    def features(self, asked: Sequence[str], taken: Sequence[int]) -> list[int]:
        """The places of the numbers: the columns that are asked for, or all that have no other role."""
        if asked:
            places = [self.named(name) for name in asked]
            for name, place in zip(asked, places, strict=True):
                if place is None:
                    raise unknown_name("column", name, self.names)
            return [place for place in places if place is not None]
        free = [place for place in range(len(self.names)) if place not in taken]
        times = [place for place in free if usual(self.names[place]) in TIMES]
        if times and len(times) < len(free):
            names = ", ".join(repr(self.names[place]) for place in times)
            note(f"{self.path}: {names} is left out, since it counts the rows. To read it, set data.feature_columns.")
            free = [place for place in free if place not in times]
        if not free:
            raise UserError(f"{self.path} has no column of numbers; it has {', '.join(self.names)}.")
        return free

    def numbers(self, places: Sequence[int]) -> NDArray[np.float32]:
        """The numbers of some columns, (T, D)."""
        found = np.empty((len(self.rows), len(places)), dtype=np.float32)
        for i, place in enumerate(places):
            for row, cells in enumerate(self.rows):
                number = number_of(cells[place])
                if number is None or not abs(number) <= LARGEST:
                    raise self._no_number(row, place)
                found[row, i] = number
        return found

    def where(self, row: int) -> str:
        """The place of a row, for messages."""
        return f"{self.path}{self.before}{self.lines[row]}"

    def _no_number(self, row: int, place: int) -> UserError:
        cell, where = self.rows[row][place].strip(), self.where(row)
        if number_of(cell) is None:
            return UserError(
                f"{where}: {cell!r} in the column {self.names[place]!r} is no number.",
                "Name the columns with numbers (data.feature_columns), or the one that tells sequences apart "
                "(data.sequence_column). Words with tags belong in a .conll or .tsv file.",
            )
        return UserError(
            f"{where}: the column {self.names[place]!r} {f'holds {cell}' if cell else 'is empty'}.",
            "Give a number, or leave the row out.",
        )

    def tags(self, place: int, names: Sequence[str]) -> list[str]:
        """The class of each row."""
        tags = self.column(place)
        if "" in tags:
            where = self.where(tags.index(""))
            raise UserError(f"{where} has no class in the column {self.names[place]!r}.", "Every frame needs one.")
        if all(tag.removeprefix("-").isdecimal() for tag in tags):
            if not names:
                note_unnamed_tags(self.path, self.names[place])
            return list(tags_of_numbers([int(tag) for tag in tags], names or None, self.names[place], str(self.path)))
        return tags
