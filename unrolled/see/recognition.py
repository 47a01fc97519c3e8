"""Pictures of a reading: labels over time under what was heard or seen (S34)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unrolled.see.labels import drawable, fonts, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

VISIBLE = 0.05  # a label that never is more probable than this is left out of the picture


class Reading(NamedTuple):
    """What is drawn. Times are in `unit`, from 0 to `end`."""

    signal: NDArray[Any]  # (T, D): a spectrogram, the columns of a line, or frames
    kind: str  # audio, line or frames
    posteriors: NDArray[np.floating[Any]]  # (S, V) probabilities, the blank first
    names: Sequence[str]  # of the labels
    labels: Sequence[tuple[str, float, float]]  # the reading: each label, from when to when
    text: str
    unit: str
    end: float


def recognition_figure(reading: Reading) -> Figure:
    """Three panels over one time: the signal with the reading below it; spikes; all probabilities.

    >>> rows = np.array([[0.9, 0.1], [0.2, 0.8], [0.9, 0.1]])
    >>> seen = Reading(np.zeros((6, 4)), "frames", rows, ["<blank>", "a"], [("a", 2, 4)], "a", "frames", 6)
    >>> [axis.get_ylabel() for axis in recognition_figure(seen).axes[:3]]
    ['features', 'probability', 'label']
    """
    from matplotlib.figure import Figure

    wide = float(np.clip(0.22 * len(reading.labels) + 0.02 * len(reading.posteriors), 8, 36))
    rows = _visible(reading)
    figure = Figure(figsize=(wide, 4.6 + 0.16 * len(rows)), layout="constrained")
    above, spikes, below = figure.subplots(3, 1, sharex=True, height_ratios=[1.6, 1.8, 0.8 + 0.13 * len(rows)])
    _draw_signal(above, reading)
    _draw_spikes(spikes, reading, rows)
    image = _draw_all(below, reading, rows)
    figure.colorbar(image, ax=below, fraction=0.03, pad=0.01, label="probability")
    below.set_xlabel(reading.unit)
    below.set_xlim(0, reading.end)
    title = reading.text if len(reading.text) < 12 * wide else reading.text[: int(12 * wide)] + "…"
    figure.suptitle(drawable(title) or "(nothing)", fontsize=11, family=fonts())
    return figure


def _visible(reading: Reading) -> list[int]:
    """The labels to show: those of the reading, and what else was ever probable; the blank is the first."""
    read = {name for name, _, _ in reading.labels}
    most = reading.posteriors.max(axis=0)
    chosen = [i for i, name in enumerate(reading.names) if i and (name in read or most[i] > VISIBLE)]
    first = {i: int(reading.posteriors[:, i].argmax()) for i in chosen}
    return [0, *sorted(chosen, key=lambda i: first[i])[:60]]


def _draw_signal(axis: Axes, reading: Reading) -> None:
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
    for name, start, end in reading.labels:
        axis.text(
            (start + end) / 2, -0.06, shown(name), transform=axis.get_xaxis_transform(), ha="center", va="top",
            fontsize=9, family=fonts(), color="tab:blue",
        )  # fmt: skip


def _draw_spikes(axis: Axes, reading: Reading, rows: Sequence[int]) -> None:
    """A curve for each label: long silence of the blank, and spikes."""
    steps = len(reading.posteriors)
    middles = (np.arange(steps) + 0.5) * (reading.end / max(1, steps))
    axis.plot(middles, reading.posteriors[:, 0], "--", color="0.6", linewidth=1, label="blank")
    for row in rows[1:]:
        curve = reading.posteriors[:, row]
        (line,) = axis.plot(middles, curve, linewidth=1.2)
        axis.fill_between(middles, curve, alpha=0.15, color=line.get_color())
    axis.set(ylabel="probability", ylim=(0, 1.05))
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False)
    axis.grid(alpha=0.25)


def _draw_all(axis: Axes, reading: Reading, rows: Sequence[int]) -> Any:
    table = reading.posteriors[:, rows].T
    image = axis.imshow(
        table, aspect="auto", cmap="Greys", vmin=0, vmax=1, interpolation="nearest",
        extent=(0, reading.end, len(rows), 0),
    )  # fmt: skip
    names = ["blank" if row == 0 else shown(reading.names[row]) for row in rows]
    axis.set_yticks(np.arange(len(rows)) + 0.5, names, fontsize=7, family=fonts())
    axis.set_ylabel("label")
    return image
