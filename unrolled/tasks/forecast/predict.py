"""Forecasts after a series: the next steps, roll-outs and intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from unrolled.data.readers.series.read_series import Numbers
from unrolled.errors import UserError
from unrolled.tasks.forecast.layout import frame_of
from unrolled.tasks.forecast.stream import Interval, RowStream, as_rows, check_level

if TYPE_CHECKING:
    from unrolled.model import Model


def continuation(
    model: Model,
    rows: Any,
    steps: int | None = None,
    interval: float | None = None,
    **options: Any,
) -> Numbers | Interval:
    """The forecast after some rows: of every horizon, or of `steps` steps that the model continues by itself."""
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
        raise UserError("There are no rows to continue.", "Give at least one.")

    def chosen(numbers: Numbers) -> Numbers:
        if frame.roles.aligned:
            return numbers[0] if single else numbers
        return numbers[-1:] if len(frame.roles.horizons) == 1 else numbers[-1]

    return chosen(answer) if interval is None else Interval(*map(chosen, (answer, *stream.interval(interval))))


def check_forecast_options(options: Mapping[str, Any]) -> None:
    """Rejects options that do not go together."""
    if options.get("sample") and options.get("steps") is None:
        raise UserError("sample is for a forecast of several steps.", "Give their number: steps (--steps).")
    draws = options.get("sample") or (options.get("interval") is not None and options.get("steps") is not None)
    if options.get("seed") is not None and not draws:
        raise UserError(
            "seed is for samples, and none are drawn.", "Ask for one with sample (--sample), or leave it out."
        )
    if options.get("hold_inputs") and options.get("steps") is None:
        raise UserError("hold_inputs is for a forecast of several steps.", "Give their number: steps (--steps).")
    if options.get("interval") is not None:
        check_level(options["interval"])
        if options.get("sample"):
            raise UserError("interval draws many samples, sample draws one.", "Leave out one of them.")


def predict(model: Model, inputs: Any, **options: Any) -> Any:
    """The continuation of a series, or of each of a list of arrays: see `Forecast.predict`."""
    check_forecast_options(options)
    if isinstance(inputs, Mapping):  # series by their names
        return {name: continuation(model, one, **options) for name, one in inputs.items()}
    if isinstance(inputs, (list, tuple)) and inputs and all(isinstance(one, np.ndarray) for one in inputs):
        return [continuation(model, one, **options) for one in inputs]
    return continuation(model, inputs, **options)
