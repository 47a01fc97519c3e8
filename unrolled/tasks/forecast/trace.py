"""Trace of a forecaster on a series."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from unrolled.data.readers.series.read_series import Numbers
from unrolled.data.signals.scaling import ColumnScaling
from unrolled.errors import UserError
from unrolled.models.forecaster import Forecaster
from unrolled.see import Forecasts, ModelTrace, Probe, check_memory
from unrolled.see.options import HIDE, TARGET, TRUTH, TraceOption, follows_truth, read_options
from unrolled.tasks.forecast.describe import adds_nothing
from unrolled.tasks.forecast.layout import frame_of
from unrolled.tasks.forecast.read import Table
from unrolled.tasks.forecast.rows import rows_of
from unrolled.tasks.forecast.stream import as_rows
from unrolled.tasks.runner import Request
from unrolled.tasks.shared.trace import NO_GATES, TRANSFORMER, attention_of, parts_of
from unrolled.tasks.tracer import Example, Tracer, nth

OPTIONS = (HIDE, TRUTH, TARGET)
MOST_LOOKED_AT = 200  # rows of an example
UNKNOWN = "It is not known what came, so each loss is the forecast itself: gradients say what it hangs on."


class ForecastTracer(Tracer):
    """Traces a forecaster on the rows of a series."""

    options: ClassVar[tuple[TraceOption, ...]] = OPTIONS

    def trace(self, inputs: Any, **options: Any) -> ModelTrace:
        """Every gate and state of the recurrent layers on a series (T, D), and the loss of each forecast."""
        chosen, frame = read_options(self.options, options), frame_of(self.model)
        assert isinstance(self.model.network, Forecaster)
        return trace_rows(self.model.network, frame, as_rows(inputs, frame)[0], **chosen)

    def input(self, request: Request) -> Numbers:
        """The first series of a file, or rows of numbers with commas between, on lines."""
        rows = list(rows_of(self.model, request))
        if not rows:
            names = ", ".join(frame_of(self.model).roles.read[:10])
            raise UserError("There are no rows.", f"Give a file, or rows of {names} with commas between.")
        first = (rows[0].source, rows[0].series)
        return np.stack([row.values for row in rows if (row.source, row.series) == first])

    def example(self, examples: Table, number: int) -> Example:
        """The first rows of a validation series, and the targets of these and of the rows after them."""
        part, roles = nth(examples.parts, number), examples.roles
        wanted = [roles.names.index(name) for name in roles.targets]
        values, farthest = part.series.values, max(roles.horizons)
        last = max(part.first + 1, min(part.first + MOST_LOOKED_AT, len(values) - farthest))
        read = frame_of(self.model).rows(part.series)
        return Example(read[part.first : last], values[part.first : last + farthest, wanted])


def trace_rows(
    network: Forecaster,
    frame: ColumnScaling,
    rows: Numbers,
    *,
    hide: Sequence[int],
    truth: Any = None,
    target: str | None,
) -> ModelTrace:
    """Every gate and state while rows are read, and the loss of each row's forecast.

    The loss is that of training where it is known what came: from the rows themselves, or from `truth`, the targets
    (rows, K) from the first row on. Where it is not known, or the answer is asked for, the loss is the forecast itself
    in scaled units: its gradient then says what the forecast hangs on.
    """
    if not len(rows):
        raise UserError("There is no row to trace.", "Give at least one.")
    network.eval()
    check_memory(len(rows), network, "rows")
    device = network.scale.device
    features, _ = frame.inputs(rows)
    names = [str(number) for number in range(len(rows))]
    if frame.start_row:
        features, names = np.concatenate([frame.start_features(), features]), ["start", *names]
    probe = Probe(names, hide)
    estimate, seen = network.trace(torch.from_numpy(features)[None].to(device), probe)
    came = _scaled_truth(frame, rows, truth)
    wanted = _wanted(frame, came, len(names)).to(device)
    known = not bool(wanted.isnan().all())
    follow = follows_truth(came if known else None, target)
    losses = _losses(network, wanted, estimate[0].float(), follow)
    points = frame.unscaled(network.output.point(estimate[0].detach()).cpu().numpy())  # (T, horizons, K)
    forecasts = _forecasts(frame, points, frame.unscaled(wanted.cpu().numpy()))
    shown = [f"{name} {one.forecast[-1]:.4g}" for name, one in forecasts.items()]
    true = [f"{name} {one.truth[-1]:.4g}" for name, one in forecasts.items() if not np.isnan(one.truth[-1])]
    return ModelTrace(
        "forecast",
        ("" if frame.roles.aligned or true else "then ") + _some(shown),
        names,
        losses,
        parts_of(seen, names),
        {"input": probe},
        aligned="",
        attention=attention_of(seen, names),
        reasons={
            **(NO_GATES if seen.trace is not None else TRANSFORMER),
            "attention": "A recurrent forecaster has no attention.",
            "beams": "Numbers are not searched for: there is no beam.",
        },
        truth=_some(true) if true else None,
        follows="truth" if follow else "answer",
        forecasts=forecasts,
        notes=(*adds_nothing(network), *([] if known else [UNKNOWN])),
    )


def _some(texts: Sequence[str]) -> str:
    return ", ".join(texts[:8]) + (", …" if len(texts) > 8 else "")


def _scaled_truth(frame: ColumnScaling, rows: Numbers, truth: Any) -> Tensor:
    """The scaled true targets: (rows, K), NaN if unknown."""
    if truth is None:
        values = np.full((len(rows), len(frame.positions)), np.nan)
        for k, place in enumerate(frame.positions):
            if place >= 0:
                values[:, k] = rows[:, place]
    else:
        values = np.asarray(truth, dtype=np.float64)
        values = values[:, None] if values.ndim == 1 else values
        if values.ndim != 2 or values.shape[1] != len(frame.roles.targets):
            raise UserError(
                f"The truth has shape {values.shape}.",
                f"Expected a row for each row of the input, with {', '.join(frame.roles.targets[:10])}.",
            )
    columns = frame.target_columns
    return torch.from_numpy((values - np.array(frame.center)[columns]) / np.array(frame.scale)[columns])


def _wanted(frame: ColumnScaling, came: Tensor, steps: int) -> Tensor:
    """The target of each step and horizon, (T, horizons, K), NaN where it is not known."""
    first = int(frame.start_row)  # a start row stands before the rows
    wanted = torch.full((steps, len(frame.roles.horizons), came.shape[1]), torch.nan)
    for index, horizon in enumerate(frame.roles.horizons):
        begin = max(0, first - horizon)
        coming = came[max(0, horizon - first) :][: steps - begin]
        wanted[begin : begin + len(coming), index] = coming.float()
    return wanted


def _losses(network: Forecaster, wanted: Tensor, estimate: Tensor, follow: bool) -> Tensor:
    """(T,): of each step, over all horizons and targets."""
    if not follow:
        total: Tensor = network.output.point(estimate).sum((-1, -2))
        return total
    losses = network.output.loss(estimate, wanted.nan_to_num(), network.scale)
    return torch.where(wanted.isnan(), 0.0, losses).sum((-1, -2))


def _forecasts(frame: ColumnScaling, points: Numbers, truth: Numbers) -> dict[str, Forecasts]:
    """The forecasts of each target at each horizon, beside the truth."""
    first = int(frame.start_row)
    found = {}
    for index, horizon in enumerate(frame.roles.horizons):
        rows = [step - first + horizon for step in range(len(points))]
        for k, name in enumerate(frame.roles.targets):
            shown = name if frame.roles.aligned else f"{name}+{horizon}"
            found[shown] = Forecasts(rows, points[:, index, k].tolist(), truth[:, index, k].tolist())
    return found
