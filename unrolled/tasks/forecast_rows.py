"""`unrolled run` for a forecaster: rows of numbers in, a line of predictions out for each, as they come."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unrolled.data.frame import Frame
from unrolled.data.series import Numbers, is_header, number_of, number_separator, read_series, split_line
from unrolled.errors import UserError, note
from unrolled.model import Model
from unrolled.tasks.base import Format, Request
from unrolled.tasks.forecast_stream import RowStream, check_rows


@dataclass(frozen=True)
class Row:
    """One row of inputs (D,), the series it belongs to, and where it stands."""

    values: Numbers
    series: str  # the value of the sequence column
    source: int  # the same series of another file is another one
    place: str


def answers(model: Model, request: Request, **options: Any) -> Iterator[str]:
    """Lines of predictions: one for each row, or with the option `steps` a continuation of each series.

    Each series has a stream of its own, so that rows of several may alternate.
    """
    frame: Frame = model.assets
    steps, column = options.get("steps"), sequence_column(model)
    names = output_names(frame, single=steps is not None)
    new, streams = RowStream(model), dict[tuple[int, str], RowStream]()
    header = request.format == "csv"
    for row in rows_of(model, request):
        stream = streams.get((row.source, row.series))
        if stream is None:
            stream = streams[row.source, row.series] = new.another()
        values = stream.feed(row.values[None])[0]
        if steps is None:
            details = {name: numbers[0] for name, numbers in stream.details.items()}
            yield _written(record_of(names, values, details), column, row.series, request.format, header)
            header = False
    if not streams:
        raise UserError("There are no rows.", f"Expected the columns {', '.join(frame.roles.inputs[:10])}.")
    if steps is None:
        return
    for (_, series), stream in streams.items():
        for values in stream.roll_out(**options):
            yield _written(record_of(names, values, {}), column, series, request.format, header)
            header = False


def sequence_column(model: Model) -> str | None:
    """The column that tells the series of a table apart, where the model was trained with one."""
    column: str | None = getattr(model.config, "data").sequence_column  # noqa: B009
    return column


def output_names(frame: Frame, single: bool) -> list[str]:
    """The names of what comes out: the targets, with their horizon where there are several."""
    horizons, targets = frame.roles.horizons, frame.roles.targets
    if single or len(horizons) == 1:
        return list(targets)
    return [f"{target}+{horizon}" for horizon in horizons for target in targets]


def record_of(names: Sequence[str], values: Numbers, details: Mapping[str, Numbers]) -> dict[str, float]:
    record = dict(zip(names, np.ravel(values).tolist(), strict=True))
    for kind, numbers in details.items():
        record |= {f"{name}_{kind}": value for name, value in zip(names, np.ravel(numbers).tolist(), strict=True)}
    return record


def rows_of(model: Model, request: Request) -> Iterator[Row]:
    """The rows that a request means: of texts, files, or standard input."""
    frame: Frame = model.assets
    sequence = sequence_column(model)
    texts = [line for text in request.texts or () for line in text.splitlines()]
    yield from rows_of_lines(texts, frame, sequence, "The text", 0)
    for source, file in enumerate(request.files, 1):
        sheet = read_series(file, frame.roles.inputs, sequence_column=sequence, missing=frame.missing)
        empty = [series for series in sheet.series if not len(series.values)]
        if empty:
            note(f"{len(empty)} of {len(sheet.series)} series have no row and are left out: {empty[0].name}.")
        for series in sheet.series:
            frame.check_size(series.values, series.place)
        for series, number in sheet.in_order():
            yield Row(series.values[number], series.key, source, series.place(number))
    yield from rows_of_lines(request.lines, frame, sequence, "Standard input", len(request.files) + 1)


def rows_of_lines(lines: Iterable[str], frame: Frame, sequence: str | None, name: str, source: int) -> Iterator[Row]:
    """Lines with commas, semicolons or tabs between numbers; a first line of names says which columns there are."""
    names: list[str] = []
    separator = ","
    for number, line in enumerate(lines, 1):
        text = line.removeprefix("\ufeff").rstrip("\r\n")
        if not text.strip():
            continue
        place = f"{name}, line {number}"
        if not names:
            separator = "\t" if "\t" in text else number_separator(text)
        cells = split_line(text, separator, place)
        if not names:
            header = is_header(cells, asked={*frame.roles.inputs, *([sequence] if sequence else [])})
            names = _names(cells, frame, sequence, place) if header else _unnamed(cells, frame, sequence, name)
            if header:
                continue
        if len(cells) != len(names):
            raise UserError(f"{place} has {len(cells)} columns.", f"Expected {len(names)}: {', '.join(names[:10])}.")
        record = dict(zip(names, cells, strict=True))
        yield Row(_values(record, frame, place), record.get(sequence, "") if sequence else "", source, place)


def _names(cells: Sequence[str], frame: Frame, sequence: str | None, place: str) -> list[str]:
    """The columns of a first line of names."""
    names = [cell.strip() for cell in cells]
    for name in [*frame.roles.inputs, *([sequence] if sequence else [])]:
        if names.count(name) != 1:
            problem = f"{place} has {'two columns' if name in names else 'no column'} {name!r}."
            raise UserError(problem, f"Its columns: {', '.join(names[:20])}.")
    return names


def _unnamed(cells: Sequence[str], frame: Frame, sequence: str | None, name: str) -> list[str]:
    """The columns of lines without names: the inputs; or all of a table whose columns are numbered, as in a file."""
    inputs = list(frame.roles.inputs)
    wanted = [*inputs, *([sequence] if sequence else [])]
    if len(cells) > len(inputs) and all(column.isdecimal() for column in wanted):
        return [str(i + 1) for i in range(max(len(cells), *map(int, wanted)))]
    if sequence and len(cells) == len(inputs):
        note(f"{name} has no column {sequence!r}: its rows are read as one series.")
    return inputs


def _values(record: Mapping[str, str], frame: Frame, place: str) -> Numbers:
    """The inputs (D,) among the cells of a line."""
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
    return values


def _written(record: Mapping[str, float], column: str | None, series: str, format: Format, header: bool) -> str:
    """An answer as a line; for programs it begins with the series it belongs to, under that column's name."""
    if format == "text":
        return "\t".join(f"{value:.6g}" for value in record.values()) + "\n"
    named = {} if column is None else {column: series}
    if format == "jsonl":
        return json.dumps({**named, **record}, ensure_ascii=False) + "\n"
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    if header:
        writer.writerow([*named, *record])
    writer.writerow([*named.values(), *record.values()])
    return file.getvalue()
