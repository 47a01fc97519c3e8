"""Forecasts after a series: the next steps, roll-outs and intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unrolled.data.readers.series.read_series import Numbers
from unrolled.errors import UserError
from unrolled.model import Model
from unrolled.tasks.forecast.layout import frame_of
from unrolled.tasks.forecast.stream import Interval, RowStream, as_rows, check_level


def continuation(
    model: Model,
    rows: Any,
    steps: int | None = None,
    interval: float | None = None,
    **options: Any,
) -> Numbers | Interval:
    frame = frame_of(model)
    values, single = as_rows(rows, frame)
    stream = RowStream(model, whole=True)
    answer = stream.feed(values)
    if steps is not None:
        if interval is None:
            return stream.roll_out(steps, **options)
        lower, upper = stream.spread(steps, interval, **{k: v for k, v in options.items() if k != "sample"})
        held = bool(options.get("hold_inputs"))
        return Interval(stream.roll_out(steps, hold_inputs=held), lower, upper)
    if not len(values) and not frame.roles.aligned:
        raise UserError("There is no row to go on from.", "Give at least one.")

    def chosen(numbers: Numbers) -> Numbers:
        if frame.roles.aligned:
            return numbers[0] if single else numbers
        return numbers[-1:] if len(frame.roles.horizons) == 1 else numbers[-1]

    return chosen(answer) if interval is None else Interval(*map(chosen, (answer, *stream.interval(interval))))


def check_forecast_options(options: Mapping[str, Any]) -> None:
    if options.get("sample") and options.get("steps") is None:
        raise UserError("What a model goes on with can be drawn, and it is not to go on.", "Say for how many steps.")
    drawn = options.get("sample") or (options.get("interval") is not None and options.get("steps") is not None)
    if options.get("seed") is not None and not drawn:
        raise UserError("A seed is for what is drawn, and nothing is.", "Ask for a sample, or leave it out.")
    if options.get("hold_inputs") and options.get("steps") is None:
        raise UserError("Inputs are held while a model goes on by itself, and it is not to.", "Say for how many steps.")
    if options.get("interval") is not None:
        check_level(options["interval"])
        if options.get("sample"):
            raise UserError("An interval is that of many samples, and one was asked for.", "Leave one of them out.")
