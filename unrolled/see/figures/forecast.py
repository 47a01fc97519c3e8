"""The figure of forecasts against true values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from unrolled.see.figures.labels import drawable, fonts
from unrolled.see.figures.style import text_size, width_of
from unrolled.see.trace import ModelTrace, spread

if TYPE_CHECKING:
    from unrolled.see.figures.canvas import Picture

MOST_TARGETS = 6  # panels
MOST_HORIZONS = 4  # lines beside the truth


def draw_forecast(trace: ModelTrace, layer: str | None = None, units: int = 48, width: float | None = None) -> Picture:
    """A panel for each target: true values and forecasts over the rows."""
    from matplotlib.ticker import MaxNLocator

    from unrolled.see.figures.canvas import MARKED, Picture, legend

    targets = _by_target(trace.forecasts)
    some = dict(list(targets.items())[:MOST_TARGETS])
    size = text_size(width)
    steps = max(len(one.rows) for found in some.values() for one in found.values())
    wide = width_of(steps, width)
    figure = Picture(wide, (0.04 + 0.2 * len(some)) * size, width is not None)
    axes = figure.subplots(len(some), 1, sharex=True, squeeze=False)[:, 0]
    mark = "o" if steps <= MARKED else ""
    for axis, (name, found) in zip(axes, some.items(), strict=True):
        known, truth = _true_values(found)
        if np.isfinite(truth).any():
            axis.plot(known, truth, f"{mark}-", color="black", label="truth")
        for number, (horizon, one) in enumerate(_spread(found)):
            label = "forecast" if not horizon else f"forecast {horizon} ahead"
            axis.plot(one.rows, one.forecast, f"{mark}--", color=f"C{number}", label=label, alpha=0.9)
        axis.set_ylabel(drawable(name), family=fonts())
        axis.grid(alpha=0.3)
    legend(axes[0])
    axes[-1].set_xlabel("row")
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    rows = {row for found in some.values() for one in found.values() for row in one.rows}
    if len(rows) == 1:
        axes[-1].set_xticks(list(rows))
    if len(some) < len(targets):
        axes[-1].set_xlabel(f"row; {len(some)} of {len(targets)} targets")
    return figure


def _by_target(forecasts: dict[str, Any]) -> dict[str, dict[int, Any]]:
    """target → horizon → forecasts; the horizon follows a +, and is 0 without one.

    >>> _by_target({"load+1": "a", "load+24": "b", "c++": "d"})
    {'load': {1: 'a', 24: 'b'}, 'c++': {0: 'd'}}
    """
    found: dict[str, dict[int, Any]] = {}
    for name, one in forecasts.items():
        match = re.fullmatch(r"(.*)\+(\d+)", name, re.DOTALL)
        target, horizon = (match[1], int(match[2])) if match else (name, 0)
        found.setdefault(target, {})[horizon] = one
    return found


def _true_values(found: dict[int, Any]) -> tuple[np.ndarray, np.ndarray]:
    """The rows with a known true value at any horizon, in order, and these values."""
    known: dict[int, float] = {}
    for one in found.values():
        known |= {row: value for row, value in zip(one.rows, one.truth, strict=True) if np.isfinite(value)}
    rows = np.array(sorted(known), dtype=np.int64)
    return rows, np.array([known[row] for row in rows.tolist()], dtype=np.float64)


def _spread(found: dict[int, Any]) -> list[tuple[int, Any]]:
    """At most `MOST_HORIZONS` evenly spaced horizons."""
    horizons = sorted(found.items())
    return [horizons[place] for place in spread(len(horizons), MOST_HORIZONS)]
