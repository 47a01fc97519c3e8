"""The learning curves of a run, and the gradient norms of its updates (S15)."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unrolled.see.runs import Updates, evaluations

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_POINTS = 1500  # of updates; of more, the largest of neighbours
MOST_MEDIANS = 300  # of a layer
CLIPPED = "#d55e00"


def curves(folder: Path, metric: str) -> bytes | None:
    """A PNG of loss and score, learning rate, and gradient norms over the updates; None before the first evaluation."""
    rows, updates = evaluations(folder), Updates.read(folder)
    if not rows or updates is None:
        return None
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 9), layout="constrained")
    loss, rate, norms = figure.subplots(3, 1, sharex=True, height_ratios=[2, 1, 2.5])
    _draw_scores(loss, rows, metric)
    rate.semilogy(updates.step, updates.rate)
    rate.set_ylabel("learning rate")
    rate.grid(alpha=0.3)
    draw_norms(norms, updates)
    norms.set_xlabel("updates")
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=120)
    return file.getvalue()


def _draw_scores(axis: Axes, rows: list[dict[str, Any]], metric: str) -> None:
    """The training loss, and the score; one that is no loss has an axis of its own."""
    steps, loss = [row["step"] for row in rows], metric == "loss" or metric.startswith("nats_per_")
    other = axis if loss else axis.twinx()
    axis.plot(steps, [row["train_loss"] for row in rows], "o-", ms=3, color="C0", label="training loss")
    other.plot(steps, [row[metric] for row in rows], "o-", ms=3, color="C1", label=f"validation {metric}")
    best = [row for row in rows if row["best"]]
    if best:
        other.plot(best[-1]["step"], best[-1][metric], "*", ms=14, color="black", label="best")
    if loss:
        axis.legend()
    else:
        axis.set_ylabel("training loss", color="C0")
        other.set_ylabel(f"validation {metric}; ★ the best", color="C1")
    axis.grid(alpha=0.3)


def draw_norms(axis: Axes, updates: Updates) -> None:
    """The norm of every layer's gradient before clipping, of all of them together, and which updates were clipped.

    Of many updates layers are drawn by their medians, so that they can be told apart.
    """
    every = -(-len(updates.step) // MOST_MEDIANS)
    step, *layers = (_medians(values, every) for values in (updates.step, *updates.layers.values()))
    few, each = updates.thinned(MOST_POINTS)
    axis.plot(few.step, few.norm, color="black", lw=0.7, label="all" + (f", largest of {each}" if each > 1 else ""))
    named = sorted(zip(updates.layers, layers, strict=True), key=lambda pair: -np.nan_to_num(pair[1][-1]))
    for number, (name, norms) in enumerate(named):
        style = ("-", "--", ":", "-.")[number // 10 % 4]
        axis.plot(step, norms, style, lw=1.1, color=f"C{number % 10}", label=name)
    count, marked = int(updates.clipped.sum()), few.clipped
    if count:
        label, size = f"clipped: {count} of {len(updates.step)} updates", 4 if marked.sum() <= 60 else 2
        axis.plot(few.step[marked], few.norm[marked], "v", ms=size, color=CLIPPED, label=label)
    if updates.limit is not None:
        axis.axhline(updates.limit, color=CLIPPED, ls="--", lw=1, label=f"clip_norm {updates.limit:g}")
    axis.set_yscale("log")
    axis.set_ylabel("gradient norm before clipping" + (f"\nlayers: medians of {every} updates" if every > 1 else ""))
    axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    axis.grid(alpha=0.3)


def _medians(values: NDArray[Any], every: int) -> NDArray[Any]:
    """
    >>> _medians(np.array([1.0, 9, 2, 4, 5]), 3)
    array([2. , 4.5])
    """
    return np.array([np.median(values[i : i + every]) for i in range(0, len(values), every)])
