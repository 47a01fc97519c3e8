"""The figure of scores against the source length, and the check of figure paths."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from unrolled.errors import UserError
from unrolled.see.figures.labels import drawable, fonts
from unrolled.see.figures.style import SIZE, style

if TYPE_CHECKING:
    from unrolled.see.figures.canvas import Picture

KINDS = (".png", ".svg", ".pdf")


def length_figure(tables: Mapping[str, Mapping[str, Mapping[str, float]]], metric: str = "bleu") -> Picture:
    """A score against the source length, a line for each model: name → result of `by_length`.

    >>> figure = length_figure({"a": {"1-5": {"bleu": 30.0, "sentences": 9}, "6-10": {"bleu": 20.0, "sentences": 4}}})
    >>> figure.axes[0].get_ylabel()
    'BLEU'
    """
    with style(SIZE):
        return _figure(tables, metric)


def _figure(tables: Mapping[str, Mapping[str, Mapping[str, float]]], metric: str) -> Picture:
    from matplotlib.ticker import MaxNLocator

    from unrolled.see.figures.canvas import Picture

    figure = Picture(7.0, 4.8)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    for name, table in tables.items():
        middles = [_middle(bucket) for bucket in table]
        above.plot(middles, [row[metric] for row in table.values()], "o-", ms=4, label=drawable(name))
    names = {"bleu": "BLEU", "exact_match": "exact matches"}
    best = max((row[metric] for table in tables.values() for row in table.values()), default=0.0)
    above.set(ylabel=names.get(metric, metric), ylim=(0, 1.08 * best or 1.0))
    above.legend(prop={"family": fonts()})
    above.grid(alpha=0.3)
    first = next(iter(tables.values()))
    widths = [_width(bucket) for bucket in first]
    below.bar([_middle(b) for b in first], [row["sentences"] for row in first.values()], width=widths, color="0.75")
    below.set(xlabel="length of the source", ylabel="sentences")
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def check_picture(path: str | Path) -> Path:
    """Check the path of a figure: its suffix is a known format, and its folder exists."""
    path = Path(path)
    if path.suffix.lower() not in KINDS:
        raise UserError(f"{path} is not an image file: its name ends in {path.suffix!r}.", f"Use {', '.join(KINDS)}.")
    if not path.parent.is_dir():
        raise UserError(f"There is no folder {path.parent}.", "Create it first, or choose another folder.")
    return path


def _bounds(bucket: str) -> tuple[int, int]:
    first, _, last = bucket.partition("-")
    return int(first), int(last or first)


def _middle(bucket: str) -> float:
    return sum(_bounds(bucket)) / 2


def _width(bucket: str) -> float:
    first, last = _bounds(bucket)
    return 0.9 * (last - first + 1)
