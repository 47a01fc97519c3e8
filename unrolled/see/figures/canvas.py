"""The figure class, and shared elements of figures: heat maps, lines, logarithmic axes, legends."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from unrolled.see.figures.style import style

SCREEN, PRINT = 150, 300  # dots per inch
MOST_CELLS = 8000  # of a heat map drawn as vector shapes; larger ones are images, to keep files small
MARKED = 60  # points on a line that get markers


class Picture(Figure):
    """A figure that keeps its text size and is saved with Type 42 fonts."""

    def __init__(self, width: float, height: float, printed: bool = False) -> None:
        """Create it in inches; `printed` figures have 300 dots per inch."""
        super().__init__(figsize=(width, height), layout="constrained")
        self.points = float(matplotlib.rcParams["font.size"])
        self.dots = PRINT if printed else SCREEN
        engine: Any = self.get_layout_engine()
        engine.set(w_pad=0.03, h_pad=0.03)

    def draw(self, renderer: Any) -> None:
        with style(self.points):
            super().draw(renderer)

    def savefig(self, fname: Any, *, transparent: bool | None = None, **options: Any) -> None:
        """Save as matplotlib does; images inside a PDF, SVG or PS have at least 300 dots per inch."""
        dots = options.pop("dpi", None) or self.dots
        kind = options.get("format") or (Path(fname).suffix[1:] if isinstance(fname, (str, Path)) else "png")
        if str(kind).lower() in ("pdf", "svg", "ps", "eps", "svgz"):
            dots = max(PRINT, dots) if isinstance(dots, (int, float)) else dots
        with style(self.points):
            super().savefig(fname, transparent=transparent, dpi=dots, **options)

    def as_bytes(self, format: str, dpi: float | None = None) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format=format, dpi=dpi)
        return file.getvalue()


def heat(
    axis: Axes,
    table: NDArray[Any],
    cmap: str,
    low: float | None = None,
    high: float | None = None,
    extent: tuple[float, float, float, float] | None = None,
) -> ScalarMappable:
    """A heat map with the first row at the top; NaN is left blank.

    Its cells are vector shapes, or, in a large table, an image. `extent` is that of imshow.
    """
    rows, columns = table.shape
    left, right, bottom, top = extent or (-0.5, columns - 0.5, rows - 0.5, -0.5)
    if table.size > MOST_CELLS:
        return axis.imshow(
            table, aspect="auto", interpolation="nearest", cmap=cmap, vmin=low, vmax=high,
            extent=(left, right, bottom, top),
        )  # fmt: skip
    mesh = axis.pcolormesh(
        np.linspace(left, right, columns + 1), np.linspace(top, bottom, rows + 1), np.ma.masked_invalid(table),
        cmap=cmap, vmin=low, vmax=high, edgecolors="face", linewidth=0.15,
    )  # fmt: skip
    axis.set(xlim=(left, right), ylim=(bottom, top))
    return mesh


def lines(axis: Axes, series: Mapping[str, NDArray[Any]], most: int = 8) -> None:
    """One line per series, or bars for a single step. Of many, the `most` that vary most are labelled."""
    series = {name: np.asarray(values, dtype=np.float64) for name, values in series.items()}
    if all(len(values) == 1 for values in series.values()):
        axis.barh(range(len(series)), [values[0] for values in series.values()], color="C0", height=0.6)
        axis.set_yticks(range(len(series)), list(series))
        axis.set(ylim=(len(series) - 0.5, -0.5))
        return
    spread = {name: float(np.ptp(values[np.isfinite(values)])) if np.isfinite(values).any() else 0.0
              for name, values in series.items()}  # fmt: skip
    named = sorted(series, key=lambda name: -spread[name])[:most] if len(series) > most else list(series)
    for name, values in series.items():
        mark = "o-" if len(values) <= MARKED else "-"
        if name in named:
            axis.plot(values, mark, color=f"C{named.index(name) % 10}", label=name, zorder=3)
        else:
            axis.plot(values, "-", color="0.75", lw=0.8)
    if len(named) < len(series):
        axis.plot([], [], "-", color="0.75", label=f"{len(series) - len(named)} others")


def log_axis(axis: Axes, values: NDArray[Any] | Sequence[float]) -> None:
    """A logarithmic y axis with few labels; linear if the values vary by less than a factor of three."""
    numbers = np.asarray(values, dtype=np.float64)
    positive = numbers[np.isfinite(numbers) & (numbers > 0)]
    if not len(positive) or positive.max() / positive.min() < 3:
        axis.yaxis.set_major_locator(MaxNLocator(5))
        return
    axis.set_yscale("log")
    decades = math.log10(positive.max() / positive.min())
    subs = (1.0, 2.0, 5.0) if decades < 2 else (1.0,)
    axis.yaxis.set_major_locator(LogLocator(base=10, subs=subs, numticks=7))
    short = positive.min() >= 1e-4 and positive.max() < 1e5
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}" if short else power(value)))
    axis.yaxis.set_minor_formatter(NullFormatter())


def power(value: float) -> str:
    """A number as a power of ten, for axis ticks.

    >>> print(power(1e-5), power(2e-5))
    $10^{-5}$ $2{\\cdot}10^{-5}$
    """
    exponent = math.floor(math.log10(value) + 1e-9)
    head = round(value / 10**exponent)
    return f"$10^{{{exponent}}}$" if head == 1 else f"${head}{{\\cdot}}10^{{{exponent}}}$"


def say_empty(axis: Axes, text: str) -> None:
    """Write the reason into an empty panel."""
    axis.text(0.5, 0.65, text, transform=axis.transAxes, ha="center", va="center", color="0.4", zorder=9)


def say_if_zero(axis: Axes, norms: NDArray[Any]) -> bool:
    """Write into a logarithmic panel if all norms are exactly 0; return True if so."""
    zero = bool((norms == 0).all())
    if zero:
        say_empty(axis, "every gradient is exactly 0")
    return zero


def legend(axis: Axes) -> None:
    """A legend above the right end of the panel, or inside it if there is no room."""
    names = axis.get_legend_handles_labels()[1]
    if not names:
        return
    figure: Any = axis.figure
    letter = 0.58 * figure.points / 72  # inches
    title = max(len(axis.get_title(where)) for where in ("left", "center", "right"))
    room = figure.get_figwidth() - 0.08 * figure.points - letter * (title + 1)
    columns = min(len(names), int(room / (0.83 * letter * (max(map(len, names)) + 4))))
    if columns < 1 or -(-len(names) // columns) > (1 if title else 4):
        axis.legend(loc="best", framealpha=0.7, handlelength=1.2)
        return
    columns = -(-len(names) // -(-len(names) // columns))  # rows of similar length
    axis.legend(
        loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False, ncols=columns, borderaxespad=0.1,
        handlelength=1.2, columnspacing=0.9, handletextpad=0.4, labelspacing=0.2,
    )  # fmt: skip
