"""Roles of the columns of a series, and their scaling to and from the network's units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unrolled.config.stored import DAMAGED, stored_as
from unrolled.data.batching.ragged_windows import FrameSequence
from unrolled.data.readers.series.read_series import Numbers, Series
from unrolled.data.readers.series.times import TimeStep
from unrolled.data.signals.categories import numbers_of
from unrolled.data.signals.season import repeated
from unrolled.errors import UserError

Scaling = Literal["standard", "robust", "none"]
FARTHEST_STEP = 1_000_000  # the largest horizon
FARTHEST = 1e12  # largest scaled value: its square fits into float32


@dataclass(frozen=True)
class Roles:
    """Input columns, target columns, and horizons in steps; 0 is the same step. Inputs and targets are numbers."""

    inputs: tuple[str, ...]
    targets: tuple[str, ...]
    horizons: tuple[int, ...]
    categories: tuple[str, ...] = ()  # columns of categories, read beside the inputs

    @property
    def read(self) -> tuple[str, ...]:
        """All columns that are read, in the order of an input row: numbers, then categories."""
        return (*self.inputs, *self.categories)

    @property
    def names(self) -> tuple[str, ...]:
        """All columns of numbers, each once: the order of a series' values."""
        return tuple(dict.fromkeys([*self.inputs, *self.targets]))

    @property
    def aligned(self) -> bool:
        return self.horizons == (0,)

    def output(self, target: str, horizon: int) -> str:
        """The name of a forecast: load+24; for the same step, the target's name."""
        return f"{target}+{horizon}" if horizon else target

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of all forecasts, horizon after horizon."""
        return tuple(self.output(target, horizon) for horizon in self.horizons for target in self.targets)


@dataclass(frozen=True)
class SeriesPart:
    """A series of which the rows from `first` on are scored; earlier rows are only read."""

    series: Series
    first: int = 0


@dataclass(frozen=True)
class ColumnScaling:
    """Roles and scales of the columns, fitted on the training part and stored in the model file.

    `center` and `scale` belong to the columns `roles.names`: scaled = (value − center) / scale. Columns of zeros and
    ones are not scaled. `mean` is the training mean of each target. `time` and `series` are the columns with the time
    and the series of a row; `period` is the seasonal period of the targets in rows. `levels` are the known values of
    each column of categories.
    """

    roles: Roles
    center: tuple[float, ...]
    scale: tuple[float, ...]
    mean: tuple[float, ...]
    binary: tuple[bool, ...]
    missing: bool
    start_row: bool
    time: tuple[str, ...] = ()
    series: tuple[str, ...] = ()
    step: TimeStep | None = None
    period: int | None = None
    levels: tuple[tuple[str, ...], ...] = ()

    @cached_property
    def positions(self) -> list[int]:
        """The index of each target among the inputs, −1 if it is not an input."""
        inputs = self.roles.inputs
        return [inputs.index(name) if name in inputs else -1 for name in self.roles.targets]

    @cached_property
    def target_columns(self) -> list[int]:
        """The index of each target in `roles.names`."""
        return [self.roles.names.index(name) for name in self.roles.targets]

    @property
    def features(self) -> int:
        return len(self.roles.inputs) * (2 if self.missing else 1) + len(self.levels)

    def rows(self, series: Series) -> Numbers:
        """The input rows of a series (T, D + Q): its numbers, then the numbers of its categories."""
        values = series.values[:, : len(self.roles.inputs)]
        if not self.levels:
            return values
        return np.concatenate(
            [values, numbers_of(series.cells, self.roles.categories, self.levels, series.name)], axis=1
        )

    def scaled(self, values: Numbers) -> Numbers:
        """Values (…, C) of all columns in their scales."""
        center, scale = self._scales
        scaled: Numbers = (values - center) / scale
        return scaled

    @cached_property
    def _scales(self) -> tuple[Numbers, Numbers]:
        """`center` and `scale` as arrays, cached for streams."""
        return np.array(self.center), np.array(self.scale)

    def check_size(self, values: Numbers, place: Callable[[int], str]) -> None:
        """Check values (T, …) of the first columns of `roles.names` for numbers too large for float32."""
        width = values.shape[1]
        center, scale = (numbers[:width] for numbers in self._scales)
        with np.errstate(over="ignore"):
            far = np.abs(values - center) > FARTHEST * scale
        if far.any():
            row, column = (int(i) for i in np.argwhere(far)[0])
            where = f"{place(row)}, column {self.roles.names[column]!r}"
            raise UserError(
                f"{where}: {values[row, column]:g} is too large for the model.",
                f"Expected numbers within {FARTHEST * scale[column]:.2g} of {center[column]:.2g}.",
            )

    def inputs(self, values: Numbers, last: Numbers | None = None) -> tuple[NDArray[np.float32], Numbers]:
        """Input rows (T, D + Q) → features (T, F), and the last known value of each column of numbers.

        A missing value becomes the last known one, or the training mean before any; with `missing`, further features
        are 1 for known values. The numbers of categories come last, as they are.
        """
        width = len(self.roles.inputs)
        center, scale = self._scales
        values, kinds = (values[:, :width] - center[:width]) / scale[:width], values[:, width:]
        last = np.zeros(width) if last is None else last
        if self.missing:
            here = ~np.isnan(values)
            filled = _filled(values, last)
            features = np.concatenate([filled, here, kinds], axis=1)
            return features.astype(np.float32), filled[-1] if len(filled) else last
        features = np.concatenate([values, kinds], axis=1) if kinds.size else values
        return features.astype(np.float32), values[-1] if len(values) else last

    def steps(self, part: SeriesPart) -> FrameSequence:
        """Inputs of a series, with the scaled target of each horizon at each step, (T, horizons, K)."""
        values = part.series.values
        self.check_size(values, part.series.place)
        features, _ = self.inputs(self.rows(part.series))
        wanted = self.scaled(values)[:, self.target_columns].copy()
        wanted[: part.first] = np.nan
        if self.start_row:
            features = np.concatenate([self.start_features(), features])
            wanted = np.concatenate([np.full((1, wanted.shape[1]), np.nan), wanted])
        targets = np.full((len(wanted), len(self.roles.horizons), wanted.shape[1]), np.nan, dtype=np.float32)
        for index, horizon in enumerate(self.roles.horizons):
            targets[: max(0, len(wanted) - horizon), index] = wanted[horizon:]
        return FrameSequence(features, targets)

    def seasonal(self, part: SeriesPart) -> NDArray[np.float32] | None:
        """Scaled seasonal naive forecasts (T, horizons, K), which repeat the last period; NaN before its end."""
        if self.period is None:
            return None
        values = self.scaled(part.series.values)[:, self.target_columns].astype(np.float32)
        if self.start_row:
            values = np.concatenate([np.full((1, values.shape[1]), np.nan, dtype=np.float32), values])
        return np.stack([repeated(values, horizon, self.period) for horizon in self.roles.horizons], axis=1)

    def start_features(self) -> NDArray[np.float32]:
        """The row of zeros before a series, (1, F)."""
        return np.zeros((1, self.features), dtype=np.float32)

    def unscaled(self, targets: NDArray[Any]) -> Numbers:
        """Scaled targets (…, K) in the data's own units."""
        center, scale = self._target_scales
        values: Numbers = targets.astype(np.float64) * scale + center
        return values

    def target_scale(self) -> Numbers:
        return self._target_scales[1]

    @cached_property
    def _target_scales(self) -> tuple[Numbers, Numbers]:
        center, scale = self._scales
        return center[self.target_columns], scale[self.target_columns]

    def scaled_mean(self) -> Numbers:
        """The training mean of each target in its scale."""
        mean: Numbers = (np.array(self.mean) - np.array(self.center)[self.target_columns]) / self.target_scale()
        return mean

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(stored: dict[str, Any]) -> ColumnScaling:
        frame: ColumnScaling = stored_as(ColumnScaling, stored, "scaling of columns")
        frame.check_whole()
        return frame

    def check_whole(self) -> None:
        """Check stored values: a number for each column, positive scales."""
        names, targets = self.roles.names, self.roles.targets
        finite = all(np.isfinite([*self.center, *self.scale, *self.mean]))
        columns = {len(self.center), len(self.scale), len(self.binary)} == {len(names)}
        horizons = self.roles.horizons and all(0 <= one <= FARTHEST_STEP for one in self.roles.horizons)
        columns = columns and len(self.levels) == len(self.roles.categories) and all(self.levels)
        whole = finite and columns and horizons and len(self.mean) == len(targets) and all(s > 0 for s in self.scale)
        once = all(len(set(some)) == len(some) and some for some in (self.roles.inputs, targets, self.roles.horizons))
        if not whole or not once:
            raise UserError("The stored scaling of columns is damaged: its parts do not match.", DAMAGED)


def fit_scaling(
    roles: Roles, parts: Sequence[SeriesPart], scaling: Scaling, *, missing: bool, start_row: bool, **more: Any
) -> ColumnScaling:
    """Fit the scaling to the training parts; `more` are its other fields."""
    rows = np.concatenate([part.series.values for part in parts])
    for name, column in zip(roles.names, rows.T, strict=True):
        if np.isnan(column).all():
            raise UserError(f"Column {name!r} has no value in the training part.", "Leave it out.")
    binary = [bool(np.isin(column[~np.isnan(column)], (0.0, 1.0)).all()) for column in rows.T]
    center, scale = np.zeros(rows.shape[1]), np.ones(rows.shape[1])
    if scaling != "none":
        with np.errstate(over="ignore", invalid="ignore"):
            center, scale = _standard(rows) if scaling == "standard" else _robust(rows)
        _check_scales(roles, parts, center, scale)
    center, scale = np.where(binary, 0.0, center), np.where(binary, 1.0, scale)
    targets = [roles.names.index(name) for name in roles.targets]
    mean = np.nanmean(rows[:, targets], axis=0)
    scales = [tuple(numbers.tolist()) for numbers in (center, scale, mean)]
    return ColumnScaling(roles, scales[0], scales[1], scales[2], tuple(binary), missing, start_row, **more)


def _check_scales(roles: Roles, parts: Sequence[SeriesPart], center: Numbers, scale: Numbers) -> None:
    """Check that means and deviations are finite."""
    for column in np.flatnonzero(~np.isfinite(center) | ~np.isfinite(scale)):
        sizes = [np.nan_to_num(np.abs(part.series.values[:, column])) for part in parts]
        largest = int(np.argmax([size.max(initial=0) for size in sizes]))
        series, row = parts[largest].series, int(sizes[largest].argmax())
        raise UserError(
            f"{series.place(row)}, column {roles.names[column]!r}: {series.values[row, column]:g} is too large.",
            "Correct it, or leave the column out: data.input_columns.",
        )


def constant_columns(roles: Roles, parts: Sequence[SeriesPart]) -> list[str]:
    """The constant columns."""
    rows = np.concatenate([part.series.values for part in parts])
    return [name for name, column in zip(roles.names, rows.T, strict=True) if np.nanmin(column) == np.nanmax(column)]


def _standard(rows: Numbers) -> tuple[Numbers, Numbers]:
    center, deviation = np.nanmean(rows, axis=0), np.nanstd(rows, axis=0)
    tiny = deviation <= 1e-12 * np.maximum(1e-300, np.abs(center))  # a constant, up to rounding
    return center, np.where(tiny, np.maximum(1.0, np.abs(center)), deviation)


def _robust(rows: Numbers) -> tuple[Numbers, Numbers]:
    """Median and quartiles, robust to outliers; the deviation if more than half of the values are equal."""
    low, center, high = np.nanquantile(rows, [0.25, 0.5, 0.75], axis=0)
    spread = (high - low) / 1.349  # of a normal distribution: its standard deviation
    return center, np.where(spread > 0, spread, _standard(rows)[1])


def _filled(values: Numbers, last: Numbers) -> Numbers:
    """Each missing value replaced by the last one before it."""
    stacked = np.concatenate([last[None], values])  # (1 + T, D)
    known = np.where(np.isnan(stacked), 0, np.arange(len(stacked))[:, None])
    rows = np.maximum.accumulate(known, axis=0)
    filled: Numbers = np.take_along_axis(stacked, rows, axis=0)[1:]
    return filled
