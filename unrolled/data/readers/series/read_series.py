"""Sequences of numbers in files: columns of tables (csv, tsv, jsonl, Parquet), or ragged arrays (npz)."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data.memory.held import held, shown
from unrolled.data.memory.sources import HeldRows, HeldTexts
from unrolled.data.readers.arrays import read_ragged
from unrolled.data.readers.series.key_columns import AUTO, MOST_TWICE, NO_KEYS, NONE, Keys, columns_of, find_keys
from unrolled.data.readers.series.times import Seconds, Timeline, timeline_of
from unrolled.data.readers.tables.number_cells import is_header, number_of, number_separator, with_points
from unrolled.data.readers.tables.parquet import reading_parquet
from unrolled.data.readers.tables.quoted import SEPARATORS, quoted_rows
from unrolled.data.readers.tables.records import json_records
from unrolled.data.readers.text import read_text
from unrolled.errors import UserError, note, unknown_name
from unrolled.text.files import suffix_of
from unrolled.text.globs import files_of, is_several

KINDS = (".csv", ".tsv", ".txt", ".jsonl", ".json", ".parquet", ".npz")
EMBEDDED_SERIES = "a membrane potential, 12,000 samples of 0.5 ms, that ships with matplotlib (membrane.dat)"
LOOKED_AT = 100  # cells that decide whether a column has numbers

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """One sequence: a row for each step, a column for each quantity, NaN where a value is missing.

    Rows with known times are sorted by time.
    """

    values: Numbers  # (T, C)
    name: str  # in messages: the file, or the file and the value of its sequence column
    key: str = ""  # the value of its sequence column
    file: str = ""  # prefix of a line number in messages: "a.csv:"
    lines: NDArray[np.int64] | None = None  # of each row in a table (T,)
    times: Seconds | None = None  # of each row (T,)
    cells: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # other columns of a table, unparsed

    def place(self, row: int) -> str:
        """The place of a row, for messages."""
        return f"{self.name}, row {row + 1}" if self.lines is None else f"{self.file}{self.lines[row]}"

    def rows(self, first: int, last: int) -> Series:
        """Some of its rows."""
        lines = None if self.lines is None else self.lines[first:last]
        times = None if self.times is None else self.times[first:last]
        cells = {name: column[first:last] for name, column in self.cells.items()}
        return replace(self, values=self.values[first:last], lines=lines, times=times, cells=cells)


@dataclass(frozen=True)
class Sheet:
    """All series of a file, with the same columns. An npz file with targets defines the target columns."""

    columns: tuple[str, ...]
    series: list[Series]
    own_targets: tuple[str, ...] = ()
    keys: Keys = NO_KEYS  # the columns of time and series
    timeline: Timeline | None = None  # the step between rows with known times

    def in_order(self) -> list[tuple[Series, int]]:
        """Every row as (series, row): file after file, in the order of a table, or series after series."""
        rows = [(series, row) for series in self.series for row in range(len(series.values))]
        files = {name: rank for rank, name in enumerate(dict.fromkeys(series.file for series in self.series))}
        return sorted(rows, key=lambda at: (files[at[0].file], 0 if at[0].lines is None else int(at[0].lines[at[1]])))


@dataclass(frozen=True)
class _Cells:
    """An unparsed table: the cells of each column, and the place of each row."""

    names: list[str]
    columns: list[list[Any]]
    file: str  # "a.csv:", before the number of a line
    lines: Sequence[int]

    def place(self, row: int) -> str:
        return f"{self.file}{self.lines[row]}"


@dataclass(frozen=True)
class SeriesColumns:
    """The columns to read, and how: see `read_series`."""

    columns: Sequence[str] | None = None
    sequence: str | None = None
    time: str | None = None
    missing: bool = False
    optional: Sequence[str] = ()
    taken: Sequence[str] = ()
    keep: Sequence[str] = ()


def read_series(
    path: str | Path,
    columns: Sequence[str] | None = None,
    *,
    sequence_column: str | None = None,
    time_column: str | None = None,
    missing: bool = False,
    optional: Sequence[str] = (),
    taken: Sequence[str] = (),
    keep: Sequence[str] = (),
) -> Sheet:
    """Read the series of a file, in its order; of all files of a folder or a pattern; or of data in memory.

    Tables: `columns` are names, or numbers from 1 on without a header; None: all columns whose first cells are numbers
    (a note names the others). `sequence_column` identifies the series of a row; without it the file is one series. Rows
    of a series are sorted by the `time_column`. With "auto" these two are found among the columns that are not `taken`.
    `Series.cells` has the columns to `keep`, and those of time and series. Several files have the columns of the first,
    and each has series of its own.

    npz, and arrays in memory: see `read_ragged`; `inputs` and, if there is one, `targets`, with `lengths`; a sequence
    may be empty.

    An empty cell or NaN is an error unless `missing`; an infinite number always is. Columns in `optional` may be
    absent.
    """
    how = SeriesColumns(columns, sequence_column, time_column, missing, optional, taken, keep)
    first, *others = files_of(path, KINDS) if is_several(path) else [Path(path)]
    sheet = _sheet(first, how)
    if not others:
        return sheet
    said = [",".join(names) or None for names in (sheet.keys.series, sheet.keys.time)]
    alike = replace(how, columns=sheet.columns, sequence=said[0], time=said[1])
    return _together(path, [sheet, *(_sheet(other, alike) for other in others)])


def _together(path: str | Path, sheets: Sequence[Sheet]) -> Sheet:
    """The series of several files."""
    first, names = sheets[0], dict[str, str]()
    for one in (series for sheet in sheets for series in sheet.series if sheet.keys.series):
        if one.key in names:
            raise UserError(
                f"The series {one.key!r} is in two files: {names[one.key]} and {one.name}.",
                "Join these files into one, in the order of their times.",
            )
        names[one.key] = one.name
    series = [series for sheet in sheets for series in sheet.series]
    if not first.keys.series:  # each file is a series: its name tells it apart
        series = [replace(one, key=one.name) for one in series]
    whole = replace(first, series=series)
    return whole if first.keys.format is None else _in_time(Path(path), whole, 0)


def _sheet(path: Path, how: SeriesColumns) -> Sheet:
    """The series of one file, or of data in memory."""
    given = held(path)
    suffix = suffix_of(path)
    if given is None and suffix not in KINDS:
        raise unknown_name("kind of file", suffix or path.name, KINDS)
    columns, optional, keep = how.columns, how.optional, how.keep
    if suffix == ".npz" or (given is not None and not isinstance(given, HeldRows)):
        if isinstance(given, HeldTexts):
            raise UserError(f"{given.title} holds texts.", "Expected numbers: a DataFrame, or arrays.")
        sheet = _arrays(path)
        sheet = sheet if columns is None else _selected(shown(path), sheet, columns, optional)
        for series in sheet.series:
            _check(series.values, sheet.columns, how.missing, series.place)
        return sheet
    readers = {".jsonl": _json_lines, ".json": _json_lines, ".parquet": _parquet}
    time, sequence = how.time, how.sequence
    said = [column for column in (sequence, time) if column not in (None, AUTO, NONE)]
    asked = {*(columns or ()), *keep, *(name for column in said for name in (column, *columns_of(str(column))))}
    if given is not None:
        cells = _of_rows(given)
    else:
        cells = readers[suffix](path) if suffix in readers else _separated(path, suffix, asked)
    path = shown(path)
    if time is not None and columns_of(time) == tuple(optional) and not {*optional} <= {*cells.names}:
        time = NONE
    _look_at_names(path, cells, sequence, time, keep)
    keys = find_keys(
        cells.names,
        cells.columns,
        cells.place,
        time=time or NONE,
        series=sequence or NONE,
        taken={*(columns or ()), *how.taken},
    )
    return _from_table(path, cells, columns, keys, optional, how.missing, keep)


def _of_rows(rows: HeldRows) -> _Cells:
    """A table in memory."""
    columns = [rows.get(at) for at in range(len(rows.names))]
    return _Cells(list(rows.names), columns, f"{rows.title}, row ", range(rows.count))


def _separated(path: Path, suffix: str, asked: Collection[str]) -> _Cells:
    text = read_text(path)
    first = next((line for line in io.StringIO(text) if line.strip()), "")
    separator = number_separator(first) if suffix == ".csv" else "\t"
    rows: list[list[str]] = []
    lines: list[int] = []
    for line, row in quoted_rows(text, separator, str(path)):
        width = len(rows[0]) if rows else 2
        if len(row) < 2 and not "".join(row).strip() and (width > 1 or not row):
            continue
        if rows and len(row) != width:
            raise UserError(
                f"{path}:{line} has {len(row)} {SEPARATORS[separator]}-separated columns, expected {width}.",
                "Give every row the same columns.",
            )
        rows.append(with_points(row) if separator == ";" else row)
        lines.append(line)
    _need_rows(path, len(rows))
    names = [str(i + 1) for i in range(len(rows[0]))]
    if is_header(rows[0], rows[1 : 1 + LOOKED_AT], asked):
        names = [name.strip() for name in rows.pop(0)]
        lines.pop(0)
    _need_rows(path, len(rows))
    return _Cells(names, [list(column) for column in zip(*rows, strict=True)], f"{path}:", lines)


def _json_lines(path: Path) -> _Cells:
    names: list[str] = []
    columns: list[list[Any]] = []
    lines, before = [], f"{path}:"
    for place, record in json_records(path):
        if names and set(record) - set(names):
            raise UserError(f"{place} differs from those before it.", f"Expected the keys {names}.")
        if not names:
            names, columns = list(record), [[] for _ in record]
        for name, column in zip(names, columns, strict=True):
            column.append(record.get(name))
        before = place.rstrip("0123456789")
        lines.append(int(place[len(before) :]))
    return _Cells(names, columns, before, lines)


def _parquet(path: Path) -> _Cells:
    import pyarrow.parquet

    with reading_parquet(path):
        table = pyarrow.parquet.read_table(path)
        _need_rows(path, table.num_rows)
        columns = [table.column(i).to_pylist() for i in range(table.num_columns)]
    return _Cells(list(table.column_names), columns, f"{path}, row ", range(1, table.num_rows + 1))


def _need_rows(path: Path, rows: int) -> None:
    if rows == 0:
        raise UserError(f"{path} holds no row of numbers.", "Give a file with a row for each step.")


def _look_at_names(path: Path, cells: _Cells, sequence: str | None, time: str | None, keep: Sequence[str]) -> None:
    """Check that no name is repeated, and that the named columns exist."""
    for name in {name for name in cells.names if cells.names.count(name) > 1}:
        raise UserError(f"{path} has two columns {name!r}.", "Give every column a different name.")
    for said in (sequence, time):
        if said not in (None, AUTO, NONE, *cells.names):
            _known(path, cells.names, columns_of(str(said)), ())
    _known(path, cells.names, keep, ())


def _from_table(
    path: Path,
    cells: _Cells,
    columns: Sequence[str] | None,
    keys: Keys,
    optional: Sequence[str],
    missing: bool,
    keep: Sequence[str],
) -> Sheet:
    wanted = _numeric(path, cells, keys, keep) if columns is None else _known(path, cells.names, columns, optional)
    positions = {name: i for i, name in enumerate(cells.names)}
    values = np.stack([_numbers(cells, positions[name]) for name in wanted], axis=1)  # (rows, C)
    _check(values, wanted, missing, cells.place)
    lines = np.array(cells.lines, dtype=np.int64)
    rows: dict[Any, list[int]] = {}
    named = [cells.columns[positions[name]] for name in keys.series]
    for row, key in enumerate(zip(*named, strict=True) if named else [()] * len(lines)):
        if any(isinstance(part, (list, dict)) for part in key):
            raise UserError(
                f"{cells.place(row)}, column {','.join(keys.series)!r}: {str(key[0])[:40]} does not name a series.",
                "Expected a text or a number.",
            )
        rows.setdefault(key, []).append(row)
    series, moved = [], 0
    for key, found in rows.items():
        where, times = np.array(found), None
        if keys.seconds is not None:
            order = np.argsort(keys.seconds[where], kind="stable")
            moved += int((order != np.arange(len(order))).any())
            where, times = where[order], keys.seconds[where][order]
        kept = {name: [cells.columns[positions[name]][row] for row in where] for name in (*keys.names, *keep)}
        text = "/".join(map(str, key))
        name = f"{path}, {','.join(keys.series)} {text}" if key else str(path)
        series.append(Series(values[where], name, text, cells.file, lines[where], times, kept))
    return _in_time(path, Sheet(tuple(wanted), series, keys=keys), moved)


def _in_time(path: Path, sheet: Sheet, moved: int) -> Sheet:
    """The sheet with its time step; a note if rows were sorted, an error if times are ambiguous."""
    keys, runs = sheet.keys, [one.times for one in sheet.series if one.times is not None]
    if keys.format is None:
        return sheet
    timeline, rows = timeline_of(runs, of_calendar=keys.format.of_calendar), sum(map(len, runs))
    name = ",".join(keys.time)
    if timeline.duplicates > MOST_TWICE * rows:
        raise UserError(
            f"{path}: {timeline.duplicates:,} of {rows:,} rows have a time, {name!r}, that another row "
            f"{'of the series ' if keys.series else ''}has too.",
            "Name the column that identifies the series, or several with commas: data.sequence_column. "
            "data.time_column=none reads the rows in the file's order, as one series.",
        )
    if moved:
        lines = [one.lines for one in sheet.series if one.lines is not None]
        newest_first = all((np.diff(one) <= 0).all() for one in lines)
        said = "are newest first" if newest_first else "are not in the order of their times"
        note(f"{path}: rows {said}. They are sorted by {name!r}, oldest first.")
    return replace(sheet, timeline=timeline)


def _known(path: Path, names: Sequence[str], wanted: Sequence[str], optional: Sequence[str]) -> list[str]:
    for name in wanted:
        if name not in names and name not in optional:
            shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
            raise UserError(f"{path} has no column {name!r}.", f"Its columns: {shown}.")
    return [name for name in dict.fromkeys(wanted) if name in names]


def _numeric(path: Path, cells: _Cells, keys: Keys, keep: Sequence[str]) -> list[str]:
    """The columns whose first cells are numbers, without times, ids and columns to keep; a note names the others."""
    wanted: list[str] = []
    left_out: list[str] = []
    for name, column in zip(cells.names, cells.columns, strict=True):
        found = [number_of(cell) for cell in column[:LOOKED_AT]]
        numeric = sum(number is not None for number in found) > len(found) / 2
        present = any(number is None or number == number for number in found) or len(column) > LOOKED_AT
        if name not in (*keys.names, *keys.left_out, *keep):
            (wanted if numeric and present else left_out).append(name)
    if not wanted:
        raise UserError(f"{path} has no column of numbers.", f"Its columns: {', '.join(cells.names)}.")
    if left_out:
        shown = ", ".join(map(repr, left_out))
        note(f"{path}: left out, since they are not numbers: {shown}. To read them: data.category_columns.")
    if keys.left_out:
        shown = ", ".join(map(repr, keys.left_out))
        note(f"{path}: left out, since they look like ids or times: {shown}. To use them: data.input_columns.")
    return wanted


def _numbers(cells: _Cells, position: int) -> Numbers:
    """A column as numbers; any other cell is an error with its place."""
    column, name = cells.columns[position], cells.names[position]
    try:
        values = np.array(column).astype(np.float64)
        if values.ndim == 1 and not any("_" in cell for cell in column if isinstance(cell, str)):
            return values
    except (ValueError, TypeError, OverflowError):
        pass
    numbers = np.empty(len(column))
    for row, cell in enumerate(column):
        number = number_of(cell)
        if number is None:
            raise UserError(
                f"{cells.place(row)}, column {name!r}: {str(cell)[:40]!r} is not a number.",
                "Correct it, or leave the column out: data.input_columns.",
            )
        numbers[row] = number
    return numbers


def _arrays(path: Path) -> Sheet:
    arrays = read_ragged(path, ["inputs"], ["targets"])
    path = shown(path)
    parts = {name: [_two_axes(path, name, array) for array in found] for name, found in arrays.items()}
    inputs, targets = parts["inputs"], parts.get("targets")
    _need_rows(path, sum(map(len, inputs)))
    columns = [str(i + 1) for i in range(inputs[0].shape[1])]
    if targets is None:
        return Sheet(tuple(columns), [Series(x, f"{path}, sequence {i}", str(i)) for i, x in enumerate(inputs, 1)])
    own = [f"target {i + 1}" for i in range(targets[0].shape[1])]
    series = []
    for number, (x, y) in enumerate(zip(inputs, targets, strict=True), 1):
        if len(x) != len(y):
            raise UserError(
                f"{path}, sequence {number}: {len(x)} inputs and {len(y)} targets.", "Expected a target for each input."
            )
        series.append(Series(np.concatenate([x, y], axis=1), f"{path}, sequence {number}", str(number)))
    return Sheet((*columns, *own), series, tuple(own))


def _two_axes(path: Path, name: str, array: NDArray[Any]) -> Numbers:
    if array.dtype.kind not in "biuf" or array.ndim not in (1, 2) or array.shape[1:] == (0,):
        raise UserError(
            f"{path}: a sequence of {name} has shape {array.shape} and type {array.dtype}.",
            "Expected numbers (steps, columns) or (steps,).",
        )
    values = array.astype(np.float64)
    return values if values.ndim == 2 else values[:, None]


def _selected(path: Path, sheet: Sheet, wanted: Sequence[str], optional: Sequence[str]) -> Sheet:
    names = _known(path, sheet.columns, wanted, optional)
    positions = [sheet.columns.index(name) for name in names]
    series = [replace(series, values=series.values[:, positions]) for series in sheet.series]
    return Sheet(tuple(names), series, tuple(name for name in sheet.own_targets if name in names))


def embedded_series() -> Sheet:
    """A real recording that ships with matplotlib: a membrane potential in mV, 12,000 samples of half a millisecond."""
    from matplotlib import cbook

    path = cbook.get_sample_data("membrane.dat", asfileobj=False)
    potential = 100 * np.fromfile(str(path), dtype="<f4").astype(np.float64)  # stored in units of 0.1 V
    return Sheet(("potential",), [Series(potential[:, None], EMBEDDED_SERIES)])


def _check(values: Numbers, columns: Sequence[str], missing: bool, place: Callable[[int], str]) -> None:
    """Check for infinite values, and for missing ones unless they are allowed."""
    wrong = np.isinf(values) if missing else ~np.isfinite(values)
    if not wrong.any():
        return
    row, column = (int(i) for i in np.argwhere(wrong)[0])
    where = f"{place(row)}, column {columns[column]!r}"
    if np.isinf(values[row, column]):
        raise UserError(f"{where}: {values[row, column]} is not finite.", "Correct it, or leave the cell empty.")
    raise UserError(f"{where} is empty or NaN.", "Fill it in, or allow missing values: data.missing=mask.")
