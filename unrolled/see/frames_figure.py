"""CTC posteriors over time, under what they were computed from (S34)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from unrolled.see.labels import fonts, shown
from unrolled.see.trace import ModelTrace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LIKELY = 0.05  # a label is drawn if it gets here at some frame


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
        labels = ["·" if name == frames.labels[frames.blank] else shown(name) for name in names]
        axis.set_yticks(range(len(names)), labels, fontsize=7, family=fonts())
        axis.set_title(title, fontsize=9)
    axes[0].plot(range(steps), frames.path, color="#d55e00", lw=1)
    axes[-1].set_xlabel("frame")
    figure.colorbar(image, ax=list(axes), label="probability", fraction=0.03)
    return figure


def draw_frames(trace: ModelTrace, layer: str | None = None, units: int = 48) -> Figure:
    """What was heard or seen, the posterior of each label that matters over time, the blank dashed, and the labels."""
    from matplotlib.figure import Figure

    frames = trace.frames
    assert frames is not None
    steps = len(frames.posteriors)
    rows = 2 if frames.picture is not None else 1
    figure = Figure(figsize=(min(40.0, 3 + 0.06 * max(steps, 100)), 2.6 * rows + 0.4), layout="constrained")
    axes = figure.subplots(rows, 1, squeeze=False, sharex=True)[:, 0]
    unit = 1.0 if frames.seconds is None else frames.seconds
    if frames.picture is not None:
        axes[0].imshow(
            frames.picture.cpu().numpy(), aspect="auto", origin="lower", cmap="magma", extent=(0, steps * unit, 0, 1)
        )
        axes[0].set_yticks([])
    axis = axes[-1]
    times = (torch.arange(steps) + 0.5) * unit
    for place in range(frames.posteriors.shape[1]):
        curve = frames.posteriors[:, place]
        if place == frames.blank:
            axis.plot(times, curve, ls="--", color="0.6", lw=1, label="blank")
        elif float(curve.max()) >= LIKELY:
            axis.plot(times, curve, lw=1.2)
    for t, label, probability in frames.spikes:
        axis.annotate(
            shown(label), (float(times[t]), probability), ha="center", fontsize=8, family=fonts(),
            xytext=(0, 3), textcoords="offset points",
        )  # fmt: skip
    axis.set(ylabel="posterior", ylim=(0, 1.15), xlabel="frame" if frames.seconds is None else "seconds")
    axis.legend(loc="upper right", fontsize=7)
    axis.set_title(shown(trace.answer)[:100], fontsize=10, family=fonts())
    return figure
