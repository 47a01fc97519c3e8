"""CTC over time: posteriors, the lattice of a text, and what a search holds (S34)."""

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
    """Which state the path is in at each frame, the likeliest path drawn; and the beginnings that a search held."""
    from matplotlib.figure import Figure

    frames = trace.frames
    assert frames is not None
    assert frames.lattice is not None
    panels = [(frames.lattice, frames.states, "state of the path")]
    if frames.live is not None:
        panels.append((frames.live, frames.beginnings, "beginnings held"))
    steps, rows = len(frames.lattice), [len(names) for _, names, _ in panels]
    size = (min(40.0, 3 + 0.06 * max(steps, 100)), 1.2 + 0.2 * sum(max(6, count) for count in rows))
    figure = Figure(figsize=(size[0], min(40.0, size[1])), layout="constrained")
    axes = figure.subplots(len(panels), 1, squeeze=False, sharex=True, height_ratios=[max(6, n) for n in rows])[:, 0]
    for axis, (table, names, title) in zip(axes, panels, strict=True):
        image = axis.imshow(
            table.T.cpu().numpy(), aspect="auto", interpolation="nearest", cmap="viridis", vmin=0, vmax=1
        )
        labels = ["·" if name == frames.labels[BLANK] else shown(name) for name in names]
        axis.set_yticks(range(len(names)), labels, fontsize=7, family=fonts())
        axis.set_title(title, fontsize=9)
    axes[0].plot(range(steps), frames.path, color="#d55e00", lw=1)
    axes[-1].set_xlabel("frame")
    figure.colorbar(image, ax=list(axes), label="probability", fraction=0.03)
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
