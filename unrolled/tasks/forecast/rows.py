"""Rows of numbers for `unrolled run`, and a line of predictions for each as it arrives."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unrolled.data.readers.series.key_columns import AUTO, NONE, Keys, join_time
from unrolled.data.readers.series.read_series import Numbers, Series, Sheet, read_series
from unrolled.data.readers.series.times import Clock, TimeFormat, find_format
from unrolled.data.readers.tables.number_cells import is_header, number_of, number_separator, split_line
from unrolled.data.signals.categories import numbers_of
from unrolled.data.signals.scaling import ColumnScaling
from unrolled.errors import UserError, note
from unrolled.tasks.answer_lines import Format
from unrolled.tasks.forecast.stream import RowStream, check_held, check_roll_out, check_rows
from unrolled.tasks.runner import Request

if TYPE_CHECKING:
    from unrolled.model import Model


@dataclass(frozen=True)
class SeriesRow:
    """One row of inputs (D,), the series it belongs to, where it stands, and other cells of it."""

    values: Numbers
    series: str  # the value of the sequence column
    source: int  # the same series of another file is another one
    place: str
    cells: Mapping[str, Any] = field(default_factory=dict)  # series, time, and what is to be kept


def answers(
    model: Model,
    request: Request,
    steps: int | None = None,
    interval: float | None = None,
    keep: Sequence[str] = (),
    **options: Any,
) -> Iterator[str]:
    """Lines of predictions: one for each row, or with `steps` a continuation of each series.

    Each series has a stream of its own, so that rows of several may alternate. Files are read as a whole, other rows
    are answered as they come. Columns to `keep` stand beside the predictions.
    """
    if steps is not None and keep:
        raise UserError("--keep is for rows that were given, and --steps goes beyond them.", "Leave one of them out.")
    if steps is not None:  # before anything is read
        check_roll_out(model.assets)
        check_held(model.assets, bool(options.get("hold_inputs")))
    lines = ForecastLines(request.format, shown=keep)
    streams = Streams(model)
    texts = [line for text in request.texts or () for line in text.splitlines()]
    for source, (name, given) in enumerate((("The text", texts), *((f, None) for f in request.files))):
        if given is not None:
            yield from _as_they_come(streams, rows_of_lines(given, model, name, source, keep), lines, steps, interval)
        elif steps is None:
            yield from _of_file(streams, read_file(model, name, keep), lines, interval)
        else:
            streams.read(read_file(model, name), source)
    last = len(request.files) + 1
    found = rows_of_lines(request.lines, model, "Standard input", last, keep)
    yield from _as_they_come(streams, found, lines, steps, interval)
    if not lines.written and not streams.open:
        raise UserError("There are no rows.", f"Expected the columns {', '.join(model.assets.roles.read[:10])}.")
    if steps is not None:
        yield from _continued(streams, lines, steps, interval, options)


@dataclass
class Streams:
    """A stream for each series, and when and under which name its last row came."""

    model: Model
    open: dict[tuple[int, str], RowStream] = field(default_factory=dict)
    cells: dict[tuple[int, str], Mapping[str, Any]] = field(default_factory=dict)
    formats: dict[int, TimeFormat] = field(default_factory=dict)  # of the times of a source

    def __post_init__(self) -> None:
        self.new = RowStream(self.model, whole=True)

    def feed(self, row: SeriesRow) -> tuple[RowStream, Numbers]:
        key = (row.source, row.series)
        stream = self.open.get(key)
        if stream is None:
            stream = self.open[key] = self.new.another()
        self.cells[key] = row.cells
        return stream, stream.feed(row.values[None])

    def read(self, sheet: Sheet, source: int) -> None:
        """All rows of a file."""
        if sheet.keys.format is not None:
            self.formats[source] = sheet.keys.format
        for one in (one for one in sheet.series if len(one.values)):
            stream = self.open[source, one.key] = self.new.another()
            stream.feed(self.model.assets.rows(one))
            self.cells[source, one.key] = _cells(one, len(one.values) - 1, sheet.keys)

    def later(self, key: tuple[int, str], step: int) -> dict[str, Any]:
        """The cells of series and time, `step` steps after the last row."""
        frame: ColumnScaling = self.model.assets
        cells = {name: cell for name, cell in self.cells[key].items() if name not in frame.time}
        if len(frame.time) != 1 or frame.step is None or frame.time[0] not in self.cells[key]:
            return cells
        cell = self.cells[key][frame.time[0]]
        form = self.formats.get(key[0]) or find_format([cell], named=True)
        if form is None:
            return cells
        with contextlib.suppress(ValueError, TypeError, OverflowError):  # no such time, or beyond the year 9999
            return {**cells, frame.time[0]: form.cell(frame.step.later(form.seconds(cell), step))}
        return cells


@dataclass
class ForecastLines:
    """Answers as they are written: for programs with the cells of their row, in text with those that were asked for."""

    format: Format
    shown: Sequence[str] = ()
    written: int = 0

    def __call__(self, cells: Mapping[str, Any], record: Mapping[str, float]) -> str:
        self.written += 1
        if self.format == "text":
            kept = [str(cells[name]) for name in self.shown]
            return "\t".join([*kept, *(f"{value:.6g}" for value in record.values())]) + "\n"
        named = {name: cell.isoformat(sep=" ") if isinstance(cell, datetime) else cell for name, cell in cells.items()}
        if self.format == "jsonl":
            return json.dumps({**named, **record}, ensure_ascii=False, default=str) + "\n"
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        if self.written == 1:
            writer.writerow([*named, *record])
        writer.writerow([*named.values(), *record.values()])
        return file.getvalue()


def _as_they_come(
    streams: Streams, rows: Iterator[SeriesRow], lines: ForecastLines, steps: int | None, interval: float | None
) -> Iterator[str]:
    names = streams.model.assets.roles.outputs
    if not streams.new.causal:
        yield from _at_the_end(streams, list(rows), lines, interval)
        return
    for row in rows:
        stream, values = streams.feed(row)
        if steps is None:
            yield lines(row.cells, _records(stream, names, values, interval)[0])


def _at_the_end(
    streams: Streams, rows: Sequence[SeriesRow], lines: ForecastLines, interval: float | None
) -> Iterator[str]:
    """An answer for each row, in their order; each series is read as a whole, from both ends."""
    series: dict[tuple[int, str], list[SeriesRow]] = {}
    for row in rows:
        series.setdefault((row.source, row.series), []).append(row)
    found = {}
    for key, given in series.items():
        stream = streams.open[key] = streams.new.another()
        values = stream.feed(np.stack([row.values for row in given]))
        found[key] = iter(_records(stream, streams.model.assets.roles.outputs, values, interval))
    for row in rows:
        yield lines(row.cells, next(found[row.source, row.series]))


def _of_file(streams: Streams, sheet: Sheet, lines: ForecastLines, interval: float | None) -> Iterator[str]:
    """An answer for each row of a file, in its order; each series is read as a whole."""
    names, found = streams.model.assets.roles.outputs, {}
    for one in (one for one in sheet.series if len(one.values)):
        stream = streams.new.another()
        found[one.key] = _records(stream, names, stream.feed(streams.model.assets.rows(one)), interval)
    for one, row in sheet.in_order():
        yield lines(_cells(one, row, sheet.keys, lines.shown), found[one.key][row])


def _continued(
    streams: Streams, lines: ForecastLines, steps: int, interval: float | None, options: Mapping[str, Any]
) -> Iterator[str]:
    targets = streams.model.assets.roles.targets
    for key, stream in streams.open.items():
        more = {}
        if interval is not None:
            chosen = {name: value for name, value in options.items() if name != "sample"}
            more = dict(zip(("lower", "upper"), stream.spread(steps, interval, **chosen), strict=True))
        rolled = stream.roll_out(steps, **{k: v for k, v in options.items() if interval is None or k != "seed"})
        for step, values in enumerate(rolled):
            record = record_of(targets, values, {name: bound[step] for name, bound in more.items()})
            cells = streams.later(key, step + 1)
            yield lines(cells if lines.format == "text" else {**cells, "step": step + 1}, record)


def _records(
    stream: RowStream, names: Sequence[str], values: Numbers, interval: float | None
) -> list[dict[str, float]]:
    """The last feed's answers (n, …) by name."""
    details = dict(stream.details)
    if interval is not None:
        details |= zip(("lower", "upper"), stream.interval(interval), strict=True)
    flat = {kind: numbers.reshape(len(values), -1) for kind, numbers in details.items()}
    return [record_of(names, row, {kind: some[i] for kind, some in flat.items()}) for i, row in enumerate(values)]


def keys_of(model: Model) -> Keys:
    """The columns of time and series that the model was trained with; of earlier versions the config knows them."""
    frame: ColumnScaling = model.assets
    said = str(getattr(model.config, "data").sequence_column)  # noqa: B009
    return Keys(frame.time, frame.series or (() if said in (AUTO, NONE) else (said,)))


def record_of(names: Sequence[str], values: Numbers, details: Mapping[str, Numbers]) -> dict[str, float]:
    record = dict(zip(names, np.ravel(values).tolist(), strict=True))
    for kind, numbers in details.items():
        record |= {f"{name}_{kind}": value for name, value in zip(names, np.ravel(numbers).tolist(), strict=True)}
    return record


def rows_of(model: Model, request: Request) -> Iterator[SeriesRow]:
    """The rows that a request means: of texts, files, or standard input; those of a file series after series."""
    texts = [line for text in request.texts or () for line in text.splitlines()]
    yield from rows_of_lines(texts, model, "The text", 0)
    for source, file in enumerate(request.files, 1):
        for one in read_file(model, file).series:
            for row, values in enumerate(model.assets.rows(one)):
                yield SeriesRow(values, one.key, source, one.place(row))
    yield from rows_of_lines(request.lines, model, "Standard input", len(request.files) + 1)


def read_file(model: Model, file: str, keep: Sequence[str] = ()) -> Sheet:
    """The series of a file, with the columns that the model reads and those to keep."""
    frame: ColumnScaling = model.assets
    keys = keys_of(model)
    sheet = read_series(
        file,
        frame.roles.inputs,
        sequence_column=",".join(keys.series) or None,
        time_column=",".join(keys.time) or None,
        missing=frame.missing,
        optional=keys.time,
        keep=[*keep, *(name for name in frame.roles.categories if name not in keep)],
    )
    empty = [series for series in sheet.series if not len(series.values)]
    if empty:
        note(f"{len(empty)} of {len(sheet.series)} series have no row and are left out: {empty[0].name}.")
    for series in sheet.series:
        frame.check_size(series.values, series.place)
    if keep and Path(file).suffix == ".npz":
        raise UserError(f"{file} has no columns but those of numbers.", "--keep is for tables.")
    return sheet


def _cells(series: Series, row: int, keys: Keys, keep: Sequence[str] = ()) -> dict[str, Any]:
    """The cells of a row that stand beside its answer: series and time first, each as in its table."""
    order = [*keys.names, *(name for name in series.cells if name in keep and name not in keys.names)]
    cells = {name: series.cells[name][row] for name in order if name in series.cells}
    return {name: str(cell) if name in keys.series else cell for name, cell in cells.items()}


def rows_of_lines(
    lines: Iterable[str], model: Model, name: str, source: int, keep: Sequence[str] = ()
) -> Iterator[SeriesRow]:
    """Lines with commas, semicolons or tabs between numbers; a first line of names says which columns there are."""
    frame, keys = model.assets, keys_of(model)
    names: list[str] = []
    separator = ","
    clocks: dict[str, Clock] = {}
    for number, line in enumerate(lines, 1):
        text = line.removeprefix("\ufeff").rstrip("\r\n")
        if not text.strip():
            continue
        place = f"{name}, line {number}"
        if not names:
            separator = "\t" if "\t" in text else number_separator(text)
        cells = split_line(text, separator, place)
        if not names:
            header = is_header(cells, asked={*frame.roles.read, *keys.names, *keep})
            names = _names(cells, frame, keys, keep, place) if header else _unnamed(cells, frame, keys, keep, name)
            if header:
                continue
        if len(cells) != len(names):
            raise UserError(f"{place} has {len(cells)} columns.", f"Expected {len(names)}: {', '.join(names[:10])}.")
        record = dict(zip(names, cells, strict=True))
        series = "/".join(record.get(column, "") for column in keys.series)
        if keys.time and {*keys.time} <= {*names}:
            time = join_time([record[column] for column in keys.time])
            if clocks.setdefault(series, Clock()).goes_back(time):
                raise UserError(
                    f"{place}: the time goes back to {time!r}.",
                    "Give rows oldest first; a file is sorted, lines are answered as they come.",
                )
        kept = {column: record[column] for column in (*keys.names, *keep) if column in record}
        yield SeriesRow(
            _values(record, frame, place), series, source, place, {**dict.fromkeys(keys.series, ""), **kept}
        )


def _names(cells: Sequence[str], frame: ColumnScaling, keys: Keys, keep: Sequence[str], place: str) -> list[str]:
    """The columns of a first line of names."""
    names = [cell.strip() for cell in cells]
    for name in [*frame.roles.read, *keys.series, *keep]:
        if names.count(name) != 1:
            problem = f"{place} has {'two columns' if name in names else 'no column'} {name!r}."
            raise UserError(problem, f"Its columns: {', '.join(names[:20])}.")
    return names


def _unnamed(cells: Sequence[str], frame: ColumnScaling, keys: Keys, keep: Sequence[str], name: str) -> list[str]:
    """The columns of lines without names: the inputs; or all of a table whose columns are numbered, as in a file."""
    inputs = list(frame.roles.read)
    wanted = [*inputs, *keys.series]
    if len(cells) > len(inputs) and all(column.isdecimal() for column in wanted):
        return [str(i + 1) for i in range(max(len(cells), *map(int, wanted)))]
    if keep:
        raise UserError(
            f"{name} has no names of columns, and so no {keep[0]!r} to keep.", "Give a first line of names."
        )
    if keys.series and len(cells) == len(inputs):
        note(f"{name} has no column {','.join(keys.series)!r}: its rows are read as one series.")
    return inputs


def _values(record: Mapping[str, str], frame: ColumnScaling, place: str) -> Numbers:
    """The input row (D + Q,) among the cells of a line."""
    values = np.zeros(len(frame.roles.inputs))
    for position, name in enumerate(frame.roles.inputs):
        number = number_of(record[name])
        if number is None:
            raise UserError(
                f"{place}, column {name!r}: {record[name][:40]!r} is not a number.",
                "Expected numbers with commas, semicolons or tabs between.",
            )
        values[position] = number
    check_rows(values[None], frame, lambda _: place)
    if not frame.levels:
        return values
    named = {name: [record[name]] for name in frame.roles.categories}
    row: Numbers = np.concatenate([values, numbers_of(named, frame.roles.categories, frame.levels, place)[0]])
    return row
