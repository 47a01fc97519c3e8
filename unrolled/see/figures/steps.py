"""Labels of steps along an axis: horizontal if they fit, else vertical; numbers if there are too many."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unrolled.see.figures.labels import drawable, fonts, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMALLEST = 5.0  # points
WIDE = 0.602  # width of a DejaVu Sans Mono letter, relative to its size
LONGEST = 18  # letters of a label
FEW = 0.15  # largest share of vertical labels among horizontal ones


@dataclass(frozen=True)
class Naming:
    """Labels along an axis: their size in points, the vertical ones, and their height in inches.

    Without `names` the steps are numbered.
    """

    names: list[str]
    size: float
    turned: list[bool]
    height: float

    def write(self, axis: Axes, top: bool = False) -> None:
        """Label the steps of an x axis."""
        from matplotlib.ticker import MaxNLocator

        if top:
            axis.xaxis.tick_top()
        if not self.names:
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
            axis.set_xlabel("step")
            if top:
                axis.xaxis.set_label_position("top")
            return
        family = fonts("DejaVu Sans Mono")
        axis.set_xticks(range(len(self.names)), self.names, family=family, fontsize=self.size)
        for label, turned in zip(axis.get_xticklabels(), self.turned, strict=True):
            label.set_rotation(90 if turned else 0)


def naming(tokens: Sequence[str], inches: float, size: float) -> Naming:
    """Choose labels for steps along an axis of `inches` with text of at most `size` points.

    >>> naming(["<bos>", *"the green car"], 4.0, 8).turned[:3]
    [True, False, False]
    >>> all(naming(["seventeen", "syllables", "unsuitable"], 1.0, 8).turned)
    True
    >>> naming(["a"] * 500, 3.0, 8).names
    []
    """
    plain_names = [short(plain(token)) for token in tokens]
    names = [drawable(name) for name in plain_names]
    each = 72 * inches / max(1, len(names))  # points
    widths = [columns(name) * WIDE for name in plain_names]
    longest = max(widths, default=0.0)
    for points in _sizes(size, 6.0):
        turned = [width * points > each - 0.15 * points for width in widths]
        fits = each >= 1.1 * points
        if not any(turned) or (fits and sum(turned) <= max(1, FEW * len(names))):
            height = longest * points if any(turned) else 1.2 * points
            return Naming(names, points, turned, height / 72)
    for points in _sizes(size, SMALLEST):
        if each >= 1.1 * points:
            return Naming(names, points, [True] * len(names), longest * points / 72)
    return Naming([], size, [], 2.4 * size / 72)


def _sizes(size: float, smallest: float) -> list[float]:
    found = [size]
    while found[-1] - 0.5 >= smallest:
        found.append(found[-1] - 0.5)
    return found


def short(text: str, most: int = LONGEST) -> str:
    """The text, cut to at most `most` letters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def columns(text: str) -> int:
    """The columns of a text in a monospaced font: two for a Chinese character.

    >>> columns("ab"), columns("一")
    (2, 2)
    """
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def numbered(axis: Axes, units: Sequence[int], inches: float, size: float) -> None:
    """Label rows of a y axis with their unit numbers, as many as fit."""
    every = max(1, -(-len(units) * 1.15 * size // (72 * inches)))
    every = next((nice for nice in (1, 2, 4, 5, 8, 10, 20, 50, 100) if nice >= every), int(every))
    places = range(0, len(units), every)
    axis.set_yticks(places, [str(units[place]) for place in places], fontsize=size)
