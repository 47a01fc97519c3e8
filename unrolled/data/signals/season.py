"""Seasonality: the period of a series in rows, and the seasonal naive forecast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from unrolled.data.readers.series.times import TimeStep

Numbers = NDArray[np.float64]
Floats = TypeVar("Floats", np.float32, np.float64)

LONGEST = 10_000  # longest period in rows
MOST_ROWS = 100_000  # rows of a series that are examined
CLEAR = 0.3  # smallest autocorrelation of a period
BETTER = 0.95  # largest error of a period, relative to repeating the last value
HOUR, DAY, WEEK, YEAR = 3600.0, 86400.0, 604800.0, 365.25 * 86400


def usual_periods(step: TimeStep | None) -> list[int]:
    """Calendar periods of two to ten thousand steps: an hour, a day, a week, a year.

    >>> usual_periods(TimeStep(3600)), usual_periods(TimeStep(86400)), usual_periods(TimeStep(1, "months"))
    ([24, 168, 8766], [7, 365], [12])
    """
    if step is None or step.unit == "numbers":
        return []
    if step.unit == "months":
        return [int(12 / step.size)] if step.size < 12 and 12 % step.size == 0 else []
    wanted = [(HOUR, 0.01), (DAY, 0.01), (WEEK, 0.01), (YEAR, 0.5)]
    lengths = [(unit / step.size, near) for unit, near in wanted]
    return [round(n) for n, near in lengths if 2 <= round(n) <= LONGEST and abs(n - round(n)) <= near]


def find_period(runs: Sequence[Numbers], step: TimeStep | None = None) -> int | None:
    """The period of series (T, K) of the same columns, each at least two periods long; None if there is none.

    Candidates are calendar periods, and the highest peaks of the autocorrelations of the rows and of their differences.
    The one with the smallest error of the seasonal naive forecast wins. It must beat repeating the last value, or be a
    calendar period with correlated differences.
    """
    runs = [_filled(run[-MOST_ROWS:]) for run in runs if len(run) > 4]
    if not runs:
        return None
    longest = max(map(len, runs)) // 2
    usual = [period for period in usual_periods(step) if period <= longest]
    peaks = [_peak(runs, min(LONGEST, longest // 2)), _peak([np.diff(run, axis=0) for run in runs], longest // 2)]
    candidates = [*usual, *(peak for peak in peaks if peak is not None)]
    if not candidates:
        return None
    errors = {period: _error(runs, period) for period in candidates}
    best = min(errors, key=lambda period: errors[period])
    clear = best in usual and _autocorrelation(runs, best) > CLEAR
    return best if clear or errors[best] < BETTER * _error(runs, 1) else None


def repeated(values: NDArray[Floats], horizon: int, period: int) -> NDArray[Floats]:
    """At each row of values (T, …) the forecast for `horizon` rows later: the value whole periods before.

    NaN before the first period.

    >>> repeated(np.arange(6.0), 1, 4)
    array([nan, nan, nan,  0.,  1.,  2.])
    """
    back = -(-max(1, horizon) // period) * period - horizon
    forecast = np.full_like(values, np.nan)
    if back < len(values):
        forecast[back:] = values[: len(values) - back]
    return forecast


def _filled(run: Numbers) -> Numbers:
    """Standardised values, with missing ones at the mean."""
    with np.errstate(all="ignore"):
        mean = np.nan_to_num(np.nanmean(run, axis=0)) if not np.isnan(run).all() else np.zeros(run.shape[1])
        deviation = np.nan_to_num(np.nanstd(run, axis=0)) if not np.isnan(run).all() else np.zeros(run.shape[1])
    scaled: Numbers = np.nan_to_num((run - mean) / np.where(deviation > 0, deviation, 1.0))
    return scaled


def _error(runs: Sequence[Numbers], period: int) -> float:
    parts = [np.square(run[period:] - run[:-period]) for run in runs if len(run) > period]
    return float(sum(part.sum() for part in parts) / max(1, sum(part.size for part in parts)))


def _autocorrelation(runs: Sequence[Numbers], lag: int) -> float:
    """Autocorrelation of the differences at one lag."""
    changes = [np.diff(run, axis=0) for run in runs if len(run) > lag + 1]
    products = sum(float((change[lag:] * change[:-lag]).sum()) for change in changes)
    return products / max(1e-300, sum(float(np.square(change[lag:]).sum()) for change in changes))


def _peak(runs: Sequence[Numbers], longest: int) -> int | None:
    """The lag of the highest clear peak of the autocorrelation; the shortest of similar ones."""
    if longest < 3:
        return None
    total = np.zeros(longest + 1)
    for run in runs:
        size = 1 << (2 * len(run) - 1).bit_length()
        spectrum = np.abs(np.fft.rfft(run, size, axis=0)) ** 2
        found = np.fft.irfft(spectrum, size, axis=0)[: longest + 1].sum(1)
        counts = np.maximum(1, len(run) - np.arange(len(found)))
        total[: len(found)] += found * (len(run) / counts)
    if total[0] <= 0:
        return None
    correlation = total / total[0]
    inner = correlation[1:-1]
    peaks = 1 + np.flatnonzero((inner >= correlation[:-2]) & (inner > correlation[2:]))
    peaks = peaks[(peaks > 1) & (correlation[peaks] > CLEAR)]
    if not len(peaks):
        return None
    highest = correlation[peaks].max()
    return int(peaks[correlation[peaks] >= 0.9 * highest][0])
