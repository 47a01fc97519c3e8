"""A forecaster in use: rows as they come, and roll-outs on its own predictions."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unrolled.data.readers.series.read_series import Numbers
from unrolled.data.signals.categories import numbers_of
from unrolled.data.signals.scaling import ColumnScaling
from unrolled.errors import UserError, note
from unrolled.search.arrays import Array, arrays_of
from unrolled.tasks.shared.stream_state import packed, unpacked

if TYPE_CHECKING:
    from unrolled.model import Model

AT_ONCE = 4096  # rows
PATHS = 500  # sampled for the intervals of a roll-out


class Interval(NamedTuple):
    """A forecast, and the bounds between which the number to come lies with a probability that was asked for."""

    point: Numbers
    lower: Numbers
    upper: Numbers


class RowStream:
    """A model that is fed rows as they come, one or several at a time; how they are cut changes no bit.

    What it keeps, the state of the layers and the last rows, does not grow. Each row is a step of its own. A model that
    reads in both directions is fed a `whole` series at once.
    """

    def __init__(self, model: Model, *, whole: bool = False) -> None:
        self.model = model
        network: Any = model.network.eval()
        self._network = network
        if not self._network.causal and not whole:
            raise UserError(
                "This model reads from both ends, and needs the end of its input.",
                "Train with model.bidirectional=false; or give whole series: predict, or `unrolled run` with a file.",
            )
        self._frame: ColumnScaling = model.assets
        self._step = self._network.row_stepper()
        self.restart()

    def __enter__(self) -> RowStream:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    @property
    def causal(self) -> bool:
        """True if a row's answer depends on no later row."""
        causal: bool = self._network.causal
        return causal

    def restart(self) -> None:
        """A new sequence begins."""
        self._state: Any = None
        self._last: Numbers | None = None
        self._features: NDArray[np.float32] | None = None
        self.estimate: Array | None = None  # after the last row, (horizons, K, P)
        self._estimates: Array | None = None  # of the last feed
        self._single = False
        self.details: dict[str, Numbers] = {}  # of the last feed, shaped as what it returned: deviation, quantiles
        if self._frame.start_row and self._network.causal:
            self._advance(self._frame.start_features())

    def state(self) -> bytes:
        """Everything the stream keeps, for `model.stream(state=…)`."""
        kept = {"state": self._state, "last": self._last, "features": self._features, "estimate": self.estimate}
        return packed(self.model, "a forecaster's stream", kept)

    def resume(self, state: bytes) -> None:
        """Go on where a stream was whose `state` this is."""
        kept = unpacked(self.model, "a forecaster's stream", state)
        self.restart()
        self._state, self._last = kept["state"], kept["last"]
        self._features, self.estimate = kept["features"], kept["estimate"]

    def another(self) -> RowStream:
        """A stream of the same model for another sequence; the copied weights are shared."""
        stream = copy(self)
        stream.restart()
        return stream

    def feed(self, rows: Any) -> Numbers:
        """Input rows (n, D), or one (D,) → forecasts (n, K), or one (K,); with several horizons (n, horizons, K)."""
        values, single = as_rows(rows, self._frame)
        features, self._last = self._frame.inputs(values, self._last)
        if not len(features):
            return np.zeros((0, len(self._frame.roles.targets)))
        if not self._network.causal:
            return self._read(self._whole(features), single)
        parts = [self._advance(features[i : i + AT_ONCE]) for i in range(0, len(features), AT_ONCE)]
        return self._read(parts[0] if len(parts) == 1 else arrays_of(parts[0]).cat(parts, 0), single)

    def roll_out(
        self, steps: int, *, sample: bool = False, seed: int | None = None, hold_inputs: bool = False
    ) -> Numbers:
        """A roll-out: the next rows of the targets (steps, K), each read as the next input; the stream continues there.

        Inputs that are not predicted have no known future: with `hold_inputs` they stay at their last values, without
        it they are an error.
        """
        self._check_roll_out(steps, hold_inputs)
        assert self.estimate is not None
        output, layout, arrays = self._network.output, self._network.layout, arrays_of(self.estimate)
        generator = None if seed is None else arrays.generator(seed)
        assert self._features is not None
        features, result = self._features, []
        for step in range(1, steps + 1):
            estimate = self.estimate[layout.next]
            guess = output.draw(estimate, generator) if sample else output.guess(estimate)  # (K,)
            if guess is None:
                raise UserError("This model has no distribution to sample from.", "Train with model.loss=gaussian.")
            if not bool(arrays.isfinite(guess).all()):
                raise UserError(f"Step {step} of the continuation is not finite.", "Ask for fewer steps.")
            result.append(arrays.host(guess))
            features = layout.with_guess(features, arrays.host(guess)[None])
            self._advance(features)
        return self._frame.unscaled(np.stack(result))

    def spread(
        self, steps: int, level: float, *, seed: int | None = None, hold_inputs: bool = False
    ) -> tuple[Numbers, Numbers]:
        """The bounds (steps, K) of the middle `level` of many sampled roll-outs; the stream does not move."""
        self._check_roll_out(steps, hold_inputs)
        assert self.estimate is not None
        assert self._features is not None
        network, arrays = self._network, arrays_of(self.estimate)
        generator = arrays.generator(0 if seed is None else seed)
        state = self._step.paths(self._state, PATHS)
        x = arrays.expanded(arrays.moved(self._features), PATHS)
        estimate, result = arrays.expanded(arrays.moved(self.estimate)[None], PATHS), []
        for _ in range(steps):
            drawn = network.output.draw(estimate[:, network.layout.next], generator)
            if drawn is None:
                raise UserError("This model has no distribution to sample from.", "Train with model.loss=gaussian.")
            result.append(arrays.host(drawn))
            x = network.layout.with_guess(x, drawn)
            estimate, state = self._step.together(x, state)
        bounds = np.quantile(np.stack(result), [(1 - level) / 2, (1 + level) / 2], axis=1)  # (2, steps, K)
        return self._frame.unscaled(bounds[0]), self._frame.unscaled(bounds[1])

    def _check_roll_out(self, steps: int, hold_inputs: bool) -> None:
        if isinstance(steps, bool) or not isinstance(steps, (int, np.integer)) or steps < 1:
            raise UserError(f"steps={steps!r} is not a number of steps.", "Expected a whole number from 1 on.")
        check_roll_out(self._frame)
        check_held(self._frame, hold_inputs)
        if self.estimate is None:
            raise UserError("There is nothing to continue yet.", "Feed at least one row.")

    def _advance(self, features: NDArray[np.float32]) -> Array:
        """Rows of features (n, F) → estimates (n, horizons, K, P)."""
        estimates, self._state = self._step(features, self._state)
        self.estimate, self._features = estimates[-1], features[-1:]
        return estimates

    def _whole(self, features: NDArray[np.float32]) -> Array:
        """The estimates for the rows of a whole series, read from both ends."""
        assert self._state is None, "a series that is read from both ends has one piece"
        start = int(self._frame.start_row)
        if start:
            features = np.concatenate([self._frame.start_features(), features])
        return self._advance(features)[start:]

    def _read(self, estimates: Array, single: bool) -> Numbers:
        """Estimates (n, horizons, K, P) in the data's own units."""
        output, frame = self._network.output, self._frame
        self._estimates, self._single = estimates, single

        def shaped(values: NDArray[Any]) -> Numbers:
            values = values[:, 0] if len(frame.roles.horizons) == 1 else values
            return values[0] if single else values

        self.details = {}
        for name, values in output.details(estimates).items():
            numbers = arrays_of(values).host(values)
            own = numbers * frame.target_scale() if name == "deviation" else frame.unscaled(numbers)
            self.details[name] = shaped(own)
        return shaped(frame.unscaled(arrays_of(estimates).host(output.point(estimates))))

    def interval(self, level: float = 0.9) -> tuple[Numbers, Numbers]:
        """The bounds of the last feed's forecasts, shaped as these: between them lies a number so often."""
        check_level(level)
        if self._estimates is None:
            raise UserError("There is no forecast yet.", "Feed at least one row.")
        bounds = []
        for bound in self._network.output.interval(self._estimates, level):
            values = self._frame.unscaled(arrays_of(bound).host(bound))
            values = values[:, 0] if len(self._frame.roles.horizons) == 1 else values
            bounds.append(values[0] if self._single else values)
        return bounds[0], bounds[1]


def as_rows(rows: Any, frame: ColumnScaling) -> tuple[Numbers, bool]:
    """Rows (n, D + Q) of an input, categories as numbers, and True for a single row."""
    if frame.levels:
        return _mixed_rows(rows, frame)
    width = len(frame.roles.inputs)
    try:
        values = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError):
        raise UserError(f"Rows must be numbers, got {str(rows)[:60]!r}.", f"Expected shape (steps, {width}).") from None
    single = values.ndim == 0 or (values.ndim == 1 and width > 1)
    if values.ndim <= 1:
        values = values.reshape(1, -1) if single else values.reshape(-1, 1)
    if values.ndim != 2 or values.shape[1] != width:
        raise UserError(
            f"Rows have shape {np.shape(rows)}.",
            f"Expected (steps, {width}): {', '.join(frame.roles.inputs[:10])}{', …' if width > 10 else ''}.",
        )
    check_rows(values, frame, lambda row: f"Row {row + 1}")
    return values, single


def _mixed_rows(rows: Any, frame: ColumnScaling) -> tuple[Numbers, bool]:
    """Rows of numbers and categories: a list of them, or an array of objects; [20.5, "mon"] is a single one."""
    roles, expected = frame.roles, ", ".join(frame.roles.read)
    if isinstance(rows, np.ndarray) and rows.dtype.kind == "f" and rows.ndim == 2 and rows.shape[1] == len(roles.read):
        check_rows(rows[:, : len(roles.inputs)], frame, lambda row: f"Row {row + 1}")
        return rows.astype(np.float64), False  # categories are numbers already
    cells = np.array([list(row) if isinstance(row, (list, tuple, np.ndarray)) else row for row in rows], dtype=object)
    single = cells.ndim == 1
    cells = cells[None] if single else cells
    if cells.ndim != 2 or cells.shape[1] != len(roles.read):
        raise UserError(f"Rows have shape {cells.shape}.", f"Expected (steps, {len(roles.read)}): {expected}.")
    width = len(roles.inputs)
    try:
        values = cells[:, :width].astype(np.float64)
    except (TypeError, ValueError):
        raise UserError(
            f"Rows must be numbers and then categories, got {cells[0].tolist()}.", f"Expected {expected}."
        ) from None
    check_rows(values, frame, lambda row: f"Row {row + 1}")
    named = {name: cells[:, width + i].tolist() for i, name in enumerate(roles.categories)}
    return np.concatenate([values, numbers_of(named, roles.categories, frame.levels, "The input")], axis=1), single


def check_rows(values: Numbers, frame: ColumnScaling, place: Callable[[int], str]) -> None:
    """Refuses what the model cannot read in input rows (n, D)."""
    wrong = np.isinf(values) if frame.missing else ~np.isfinite(values)
    if wrong.any():
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        value = values[row, column]
        fix = "The model was not trained with data.missing=mask." if np.isnan(value) else "Expected finite numbers."
        raise UserError(f"{place(row)}, column {frame.roles.inputs[column]!r} is {value}.", fix)
    frame.check_size(values, place)


def can_roll_out(frame: ColumnScaling) -> bool:
    """True if the model predicts the next step and reads a part of it."""
    return 1 in frame.roles.horizons and any(position >= 0 for position in frame.positions)


def check_roll_out(frame: ColumnScaling) -> None:
    """Refuses what cannot be continued on its own predictions."""
    if frame.roles.aligned:
        raise UserError(
            "A model of aligned targets does not predict its inputs: it cannot roll out.",
            "Feed it rows, without steps.",
        )
    if 1 not in frame.roles.horizons:
        raise UserError(
            f"The model predicts {', '.join(map(str, frame.roles.horizons))} steps ahead, not the next one.",
            "Train with 1 among data.horizon.",
        )
    if all(position < 0 for position in frame.positions):
        raise UserError("No target is an input: predictions cannot be read back.", "Put the target among the inputs.")


def check_held(frame: ColumnScaling, hold_inputs: bool) -> None:
    """Inputs whose future is unknown are held at their last values only where that was asked for."""
    held = [name for name in frame.roles.read if name not in frame.roles.targets]
    if not held:
        if hold_inputs:
            note("The model predicts all of its inputs: hold_inputs changes nothing.")
        return
    names = ", ".join(map(repr, held[:10]))
    if not hold_inputs:
        its, them, value = ("its", "it", "value") if len(held) == 1 else ("their", "them", "values")
        raise UserError(
            f"The model reads {names}, which it does not predict: {its} future is unknown.",
            f"Hold {them} at {its} last {value}: --hold-inputs, from Python hold_inputs=True; or predict without "
            "steps; or train with data.input_columns that are data.target_columns too.",
        )
    note(f"Not predicted, and held at the last value: {names}.")


def check_level(level: Any) -> None:
    if isinstance(level, bool) or not isinstance(level, (int, float)) or not 0 < level < 1:
        raise UserError(f"interval={level!r} is not a probability.", "Expected a number between 0 and 1, such as 0.9.")
