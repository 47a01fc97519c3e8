"""Pictures of translations: where each word looked (S32), and scores against the source's length (S31)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unrolled.errors import UserError
from unrolled.see.text import shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = (".png", ".svg", ".pdf")
# for scripts that matplotlib's own font lacks, where one of these is installed
FALLBACKS = ("Noto Sans CJK JP", "Noto Sans CJK KR", "Noto Sans", "Droid Sans Fallback", "Arial Unicode MS")


def attention_figure(
    source: Sequence[str], target: Sequence[str], attention: NDArray[np.floating[Any]], title: str = ""
) -> Figure:
    """The matrix of attention (target, source): a row for each word written, dark where it looked.

    >>> figure = attention_figure(["ein", "Hund"], ["a", "dog"], np.eye(2))
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['a', 'dog']
    """
    from matplotlib.figure import Figure

    if attention.shape != (len(target), len(source)):
        raise UserError(
            f"The attention has shape {attention.shape}.",
            f"Expected ({len(target)}, {len(source)}): a row for each target token, a column for each source token.",
        )
    families = fonts()
    columns, rows = ([shown(token) for token in tokens] for tokens in (source, target))
    wide, high = (0.1 * max(map(len, labels)) for labels in (rows, columns))  # what the labels need, in inches
    size = (1.5 + wide + 0.33 * max(4, len(source)), 0.8 + high + 0.33 * max(3, len(target)))
    figure = Figure(figsize=size, layout="constrained")
    axis = figure.subplots()
    image = axis.imshow(attention, cmap="Greys", vmin=0.0, vmax=1.0, aspect="equal", interpolation="nearest")
    axis.set_xticks(range(len(source)), columns, rotation=90, family=families)
    axis.set_yticks(range(len(target)), rows, family=families)
    axis.xaxis.tick_top()
    axis.set_xticks(np.arange(len(source) + 1) - 0.5, minor=True)
    axis.set_yticks(np.arange(len(target) + 1) - 0.5, minor=True)
    axis.grid(which="minor", color="0.9", linewidth=0.5)
    axis.tick_params(which="minor", length=0)
    figure.colorbar(image, ax=axis, fraction=0.04, pad=0.02, label="attention")
    if title:
        figure.suptitle(title, fontsize=10, family=families)
    return figure


def length_figure(tables: Mapping[str, Mapping[str, Mapping[str, float]]], metric: str = "bleu") -> Figure:
    """A score against the length of the source, a line for each model: name → what `by_length` gave.

    >>> figure = length_figure({"a": {"1-5": {"bleu": 30.0, "sentences": 9}, "6-10": {"bleu": 20.0, "sentences": 4}}})
    >>> figure.axes[0].get_ylabel()
    'BLEU'
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(8, 5.5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    for name, table in tables.items():
        middles = [_middle(bucket) for bucket in table]
        above.plot(middles, [row[metric] for row in table.values()], "o-", ms=4, label=name)
    names = {"bleu": "BLEU", "exact_match": "exact matches"}
    best = max((row[metric] for table in tables.values() for row in table.values()), default=0.0)
    above.set(ylabel=names.get(metric, metric), ylim=(0, 1.08 * best or 1.0))
    above.legend()
    above.grid(alpha=0.3)
    first = next(iter(tables.values()))
    widths = [_width(bucket) for bucket in first]
    below.bar([_middle(b) for b in first], [row["sentences"] for row in first.values()], width=widths, color="0.75")
    below.set(xlabel="length of the source", ylabel="sentences")
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def check_picture(path: str | Path) -> Path:
    """A place for a picture: its ending says its kind, and its folder is there."""
    path = Path(path)
    if path.suffix.lower() not in KINDS:
        raise UserError(f"{path} is no picture: its name ends in {path.suffix!r}.", f"Use {', '.join(KINDS)}.")
    if not path.parent.is_dir():
        raise UserError(f"There is no folder {path.parent}.", "Make it first, or choose another place.")
    return path


def fonts() -> list[str]:
    """The fonts to draw text of any script with, as far as they are installed."""
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    return ["DejaVu Sans", *(name for name in FALLBACKS if name in installed)]


def _bounds(bucket: str) -> tuple[int, int]:
    first, _, last = bucket.partition("-")
    return int(first), int(last or first)


def _middle(bucket: str) -> float:
    return sum(_bounds(bucket)) / 2


def _width(bucket: str) -> float:
    first, last = _bounds(bucket)
    return 0.9 * (last - first + 1)
