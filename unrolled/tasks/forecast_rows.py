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
from unrolled.data.series import Numbers, is_header, number_of, read_series
from unrolled.errors import UserError
from unrolled.model import Model
from unrolled.tasks.base import Format, Request
from unrolled.tasks.forecast_stream import RowStream


@dataclass(frozen=True)
class Row:
    """One row of inputs (D,), the sequence it belongs to, and where it stands."""

    values: Numbers
    sequence: str
    place: str


def answers(model: Model, request: Request, **options: Any) -> Iterator[str]:
    """Lines of predictions: one for each row, or with the option `steps` a continuation of each sequence."""
    frame: Frame = model.assets
    names = output_names(frame, single=options.get("steps") is not None)
    stream, sequence, fed = RowStream(model), None, 0
    header = request.format == "csv"
    for row in rows_of(model, request):
        if fed and row.sequence != sequence:
            yield from _continuation(stream, options, names, request.format, header)
            header = header and options.get("steps") is None
            stream.restart()
        sequence, fed = row.sequence, fed + 1
        try:
            values = stream.feed(row.values[None])[0]
        except UserError as error:
            raise UserError(f"{row.place}: {error.problem}", error.fix) from None
        if options.get("steps") is None:
            details = {name: numbers[0] for name, numbers in stream.details.items()}
            yield from _written(record_of(names, values, details), request.format, header)
            header = False
    if not fed:
        raise UserError("There are no rows.", f"Expected the columns {', '.join(frame.roles.inputs[:10])}.")
    yield from _continuation(stream, options, names, request.format, header)


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
    sequence = getattr(model.config, "data").sequence_column  # noqa: B009
    if request.texts is not None:
        yield from rows_of_lines(request.texts, frame, sequence, "The text")
    for file in request.files:
        for series in read_series(file, frame.roles.inputs, sequence_column=sequence, missing=frame.missing).series:
            for number, values in enumerate(series.values, 1):
                yield Row(values, series.name, f"{series.name}, row {number}")
    yield from rows_of_lines(request.lines, frame, sequence, "Standard input")


def rows_of_lines(lines: Iterable[str], frame: Frame, sequence: str | None, source: str) -> Iterator[Row]:
    """Lines with commas or tabs between numbers; a first line of names says which columns there are."""
    names, separator = list(frame.roles.inputs), ","
    for number, line in enumerate(lines, 1):
        text = line.rstrip("\r\n")
        if not text.strip():
            continue
        if number == 1:
            separator = "\t" if "\t" in text else ","
        cells = next(csv.reader([text], delimiter=separator))
        place = f"{source}, line {number}"
        if number == 1 and is_header(cells):
            names = [cell.strip() for cell in cells]
            absent = [name for name in frame.roles.inputs if name not in names]
            if absent:
                raise UserError(f"{place} has no column {absent[0]!r}.", f"Its columns: {', '.join(names)}.")
            continue
        if len(cells) != len(names):
            raise UserError(f"{place} has {len(cells)} columns.", f"Expected {len(names)}: {', '.join(names[:10])}.")
        record = dict(zip(names, cells, strict=True))
        values = np.array([_number(record[name], f"{place}, column {name!r}") for name in frame.roles.inputs])
        yield Row(values, record.get(sequence, "") if sequence else "", place)


def _number(cell: str, place: str) -> float:
    number = number_of(cell)
    if number is None:
        raise UserError(f"{place}: {cell[:40]!r} is not a number.", "Expected numbers with commas or tabs between.")
    return number


def _continuation(
    stream: RowStream, options: Mapping[str, Any], names: Sequence[str], format: Format, header: bool
) -> Iterator[str]:
    """With `steps`, what the model thinks comes next."""
    if options.get("steps") is None:
        return
    for values in stream.roll_out(**options):
        yield from _written(record_of(names, values, {}), format, header)
        header = False


def _written(record: Mapping[str, float], format: Format, header: bool) -> Iterator[str]:
    if format == "jsonl":
        yield json.dumps(record, ensure_ascii=False) + "\n"
    elif format == "text":
        yield "\t".join(f"{value:.6g}" for value in record.values()) + "\n"
    else:
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        if header:
            writer.writerow(record)
        writer.writerow(record.values())
        yield file.getvalue()
