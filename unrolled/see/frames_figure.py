"""CTC over time: posteriors, and the lattice of a text (S34)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unrolled.see.frames import BLANK
from unrolled.see.labels import fonts, shown
from unrolled.see.recognition import Reading, recognition_figure
from unrolled.see.trace import ModelTrace

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_lattice(trace: ModelTrace, layer: str | None = None, units: int = 48) -> Figure:
    """Which state the path to the text is in at each frame, and the likeliest path."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    frames = trace.frames
    assert frames is not None
    assert frames.lattice is not None
    steps, states = frames.lattice.shape
    size = (min(40.0, 3 + 0.06 * max(steps, 100)), min(40.0, 1.2 + 0.2 * max(6, states)))
    figure = Figure(figsize=size, layout="constrained")
    axis = figure.subplots()
    table = frames.lattice.T.cpu().numpy()
    image = axis.imshow(table, aspect="auto", interpolation="nearest", cmap="viridis", vmin=0, vmax=1)
    labels = ["·" if name == frames.labels[BLANK] else shown(name) for name in frames.states]
    axis.set_yticks(range(states), labels, fontsize=7, family=fonts())
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.plot(range(steps), frames.path, color="#d55e00", lw=1)
    axis.set(title="state of the path to the text, · for blanks; the line: the likeliest path", xlabel="frame")
    axis.title.set_fontsize(9)
    figure.colorbar(image, ax=axis, label="probability", fraction=0.03)
    return figure


def draw_frames(trace: ModelTrace, layer: str | None = None, units: int = 48) -> Figure:
    """What was heard or seen, spikes and blanks over time, and all probabilities."""
    frames = trace.frames
    assert frames is not None
    nothing = np.zeros((len(frames.posteriors), 1))
    return recognition_figure(
        Reading(
            signal=nothing if frames.signal is None else frames.signal.cpu().numpy(),
            kind=frames.kind,
            posteriors=frames.posteriors.cpu().numpy(),
            names=frames.labels,
            labels=frames.spans,
            text=trace.answer,
            unit=frames.unit,
            end=frames.end or float(len(frames.posteriors)),
        )
    )
