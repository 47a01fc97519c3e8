"""Figures of a transcription: the input signal with labels over time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unrolled.see.figures.labels import drawable, fonts, shown
from unrolled.see.figures.steps import columns, short
from unrolled.see.figures.style import USUAL, read_width, style, text_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from unrolled.see.figures.canvas import Picture

VISIBLE = 0.05  # labels that never exceed this probability are left out


class RecognitionRow(NamedTuple):
    """The input of the figure. Times are in `unit`, from 0 to `end`."""

    signal: NDArray[Any]  # (T, D): a spectrogram, pixel columns of a line, or frames; may be empty
    kind: str  # audio, line or frames
    posteriors: NDArray[np.floating[Any]]  # (S, V) probabilities, the blank first
    names: Sequence[str]  # of the labels
    labels: Sequence[tuple[str, float, float]]  # the transcription: label, start, end
    text: str
    unit: str
    end: float


def recognition_figure(reading: RecognitionRow, width: str | float | None = None) -> Picture:
    """Three panels over one time axis: the signal with labels below it; spikes; all probabilities.

    Without a signal, the last two.

    >>> rows = np.array([[0.9, 0.1], [0.2, 0.8], [0.9, 0.1]])
    >>> seen = RecognitionRow(np.zeros((6, 4)), "frames", rows, ["<blank>", "a"], [("a", 2, 4)], "a", "frames", 6)
    >>> [axis.get_ylabel() for axis in recognition_figure(seen).axes[:3]]
    ['features', 'probability', 'label']
    """
    inches = read_width(width)
    with style(text_size(inches)):
        return _panels(reading, inches)


def _panels(reading: RecognitionRow, width: float | None) -> Picture:
    from unrolled.see.figures.canvas import Picture

    size, rows = text_size(width), visible(reading)
    wide = width or float(np.clip(0.22 * len(reading.labels) + 0.02 * len(reading.posteriors), 8, USUAL))
    heights = [0.15 * size, 0.16 * size, (0.06 + 0.0145 * len(rows)) * size][0 if reading.signal.size else 1 :]
    figure = Picture(wide, sum(heights) + 0.11 * size, width is not None)
    axes = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
    if reading.signal.size:
        draw_signal(axes[0], reading, wide - 0.13 * size, size)
    draw_spikes(axes[-2], reading, rows)
    image = _draw_all(axes[-1], reading, rows, size)
    figure.colorbar(image, ax=axes[-1], fraction=0.03, pad=0.01, label="probability" if len(rows) > 4 else "")
    axes[-1].set_xlabel(reading.unit)
    axes[-1].set_xlim(0, reading.end)
    text = short(" ".join(reading.text.split()), int(72 * wide / (0.62 * size)))
    figure.suptitle(drawable(text) or "(nothing)", family=fonts())
    return figure


def visible(reading: RecognitionRow) -> list[int]:
    """The labels to show: the blank, those of the transcription, and other probable ones."""
    read = {name for name, _, _ in reading.labels}
    most = reading.posteriors.max(axis=0)
    chosen = [i for i, name in enumerate(reading.names) if i and (name in read or most[i] > VISIBLE)]
    first = {i: int(reading.posteriors[:, i].argmax()) for i in chosen}
    return [0, *sorted(chosen, key=lambda i: first[i])[:60]]


def draw_signal(axis: Axes, reading: RecognitionRow, inches: float, size: float) -> None:
    """The signal, with each label below its time, as large as the space between labels allows."""
    signal = reading.signal.reshape(len(reading.signal), -1).T
    lines = reading.kind == "line"
    axis.imshow(
        signal,
        aspect="auto",
        origin="upper" if lines else "lower",
        cmap="Greys" if lines else "magma",
        extent=(0, reading.end, len(signal), 0) if lines else (0, reading.end, 0, len(signal)),
        interpolation="bilinear" if lines else "nearest",
    )
    axis.set_ylabel({"audio": "mel band", "line": "line"}.get(reading.kind, "features"))
    axis.set_yticks([])
    axis.tick_params(axis="x", length=0)
    points = _room(reading, inches, 0.95 * size)
    for name, start, end in reading.labels:
        axis.text(
            (start + end) / 2, -0.06, shown(name), transform=axis.get_xaxis_transform(), ha="center", va="top",
            fontsize=points, family=fonts(), color="tab:blue",
        )  # fmt: skip


def _room(reading: RecognitionRow, inches: float, size: float) -> float:
    """Text size of the labels below the signal: they do not overlap unless they would be too small to read."""
    inch = inches / max(reading.end, 1e-9)
    for (name, start, end), (after, first, last) in itertools.pairwise(reading.labels):
        apart = 72 * inch * ((first + last) - (start + end)) / 2
        size = min(size, apart / (0.35 * (columns(name) + columns(after))))
    return max(size, 4.0)


def draw_spikes(axis: Axes, reading: RecognitionRow, rows: Sequence[int]) -> None:
    """One probability curve for each label and the blank."""
    from unrolled.see.figures.canvas import legend

    steps = len(reading.posteriors)
    middles = (np.arange(steps) + 0.5) * (reading.end / max(1, steps))
    axis.plot(middles, reading.posteriors[:, 0], "--", color="0.6", linewidth=1, label="blank")
    for row in rows[1:]:
        curve = reading.posteriors[:, row]
        (line,) = axis.plot(middles, curve)
        axis.fill_between(middles, curve, alpha=0.15, color=line.get_color())
    axis.set(ylabel="probability", ylim=(0, 1.05))
    legend(axis)
    axis.grid(alpha=0.25)


def _draw_all(axis: Axes, reading: RecognitionRow, rows: Sequence[int], size: float) -> Any:
    from unrolled.see.figures.canvas import heat

    image = heat(axis, reading.posteriors[:, rows].T, "Greys", 0, 1, (0, reading.end, len(rows), 0))
    names = ["blank" if row == 0 else shown(reading.names[row]) for row in rows]
    axis.set_yticks(np.arange(len(rows)) + 0.5, names, fontsize=0.7 * size, family=fonts())
    axis.set_ylabel("label")
    return image
