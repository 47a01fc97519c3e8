"""CTC over time: posteriors, and the lattice of a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unrolled.see.figures.labels import fonts, shown
from unrolled.see.figures.recognition import RecognitionRow, draw_spikes, recognition_figure, visible
from unrolled.see.figures.style import USUAL, text_size
from unrolled.see.frames import BLANK, Frames
from unrolled.see.trace import ModelTrace

if TYPE_CHECKING:
    from unrolled.see.figures.canvas import Picture


def draw_lattice(trace: ModelTrace, layer: str | None = None, units: int = 48, width: float | None = None) -> Picture:
    """State probabilities of the text over time and the likeliest path, below the posteriors."""
    from unrolled.see.figures.canvas import Picture, heat, legend

    frames = trace.frames
    assert frames is not None
    assert frames.lattice is not None
    steps, states = frames.lattice.shape
    reading, size = _reading(trace, frames), text_size(width)
    wide = width or float(np.clip(0.22 * len(reading.labels) + 0.02 * steps, 8, USUAL))
    deep = min(0.02 * size * max(5, states), 9.0)  # inches
    figure = Picture(wide, deep + 0.27 * size, width is not None)
    above, axis = figure.subplots(2, 1, sharex=True, height_ratios=[0.14 * size, deep])
    draw_spikes(above, reading, visible(reading))
    above.set_title("posteriors", loc="left")
    image = heat(axis, frames.lattice.T.cpu().numpy(), "viridis", 0, 1, (0, reading.end, states - 0.5, -0.5))
    labels = ["·" if name == frames.labels[BLANK] else shown(name) for name in frames.states]
    every = 1 if 72 * deep >= 6 * states else 2  # without room, blanks are not labelled
    points = max(4.0, min(0.75 * size, 72 * deep * every / states / 1.1))
    axis.set_yticks(range(every - 1, states, every), labels[every - 1 :: every], fontsize=points, family=fonts())
    middles = (np.arange(steps) + 0.5) * (reading.end / max(1, steps))
    axis.plot(middles, frames.path, color="#d55e00", label="likeliest path")
    axis.set_title("states of the text, · for blanks" if wide > 5 else "states of the text", loc="left")
    legend(axis)
    axis.set(xlabel=reading.unit, xlim=(0, reading.end))
    figure.colorbar(image, ax=axis, label="probability", fraction=0.03, pad=0.01)
    return figure


def draw_frames(trace: ModelTrace, layer: str | None = None, units: int = 48, width: float | None = None) -> Picture:
    """The input signal, spikes and blanks over time, and all probabilities."""
    assert trace.frames is not None
    return recognition_figure(_reading(trace, trace.frames), width)


def _reading(trace: ModelTrace, frames: Frames) -> RecognitionRow:
    return RecognitionRow(
        signal=np.zeros((0, 0)) if frames.signal is None else frames.signal.cpu().numpy(),
        kind=frames.kind,
        posteriors=frames.posteriors.cpu().numpy(),
        names=frames.labels,
        labels=frames.spans,
        text=trace.summary,
        unit=frames.unit,
        end=frames.end or float(len(frames.posteriors)),
    )
