"""The learning curves of a run, and the gradient norms of its updates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unrolled.see.figures.style import SIZE, style
from unrolled.see.views.runs import Updates, evaluations

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from unrolled.see.figures.canvas import Picture

MOST_POINTS = 1500  # of updates; of more, the maximum over neighbours
MOST_MEDIANS = 300  # points of a layer
MOST_LAYERS = 10  # in the legend
CLIPPED, GREY = "#d55e00", "0.75"


def curves(folder: Path, metric: str) -> bytes | None:
    """A PNG of loss and score, learning rate, and gradient norms over the updates; None before the first evaluation."""
    rows, updates = evaluations(folder), Updates.read(folder)
    if not rows or updates is None:
        return None
    with style(SIZE):
        return _drawn(rows, updates, metric).as_bytes("png", dpi=120)


def _drawn(rows: list[dict[str, Any]], updates: Updates, metric: str) -> Picture:
    from matplotlib.ticker import MaxNLocator

    from unrolled.see.figures.canvas import Picture, log_axis

    figure = Picture(10, 8.4)
    loss, rate, norms = figure.subplots(3, 1, sharex=True, height_ratios=[2, 1, 2.5])
    _draw_scores(loss, rows, metric)
    rate.plot(updates.step, updates.rate, _mark(len(updates.step)))
    log_axis(rate, updates.rate)
    if rate.get_yscale() == "linear":
        rate.set_ylim(0, 1.2 * float(np.nanmax(np.append(updates.rate, 1e-12))))
    rate.set_ylabel("learning rate")
    rate.grid(alpha=0.3)
    draw_norms(norms, updates)
    norms.set_xlabel("updates")
    norms.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(updates.step) == 1:
        norms.set_xticks(updates.step)
    figure.align_ylabels([loss, rate, norms])
    return figure


def _draw_scores(axis: Axes, rows: list[dict[str, Any]], metric: str) -> None:
    """The training loss and the score, on two axes unless the score is a loss."""
    from unrolled.see.figures.canvas import say_empty

    steps, loss = [row["step"] for row in rows], metric == "loss" or metric.startswith("nats_per_")
    other = axis if loss else axis.twinx()
    axis.plot(steps, _numbers(rows, "train_loss"), "o-", color="C0", label="training loss")
    other.plot(steps, _numbers(rows, metric), "o-", color="C1", label=f"validation {metric}")
    best = [row for row in rows if row.get("best")]
    if best:
        star = _numbers(best[-1:], metric)
        other.plot(best[-1]["step"], star, "*", ms=12, color="black", label="best", zorder=5)
    if loss:
        axis.legend()
        axis.set_ylabel("loss")
    else:
        axis.set_ylabel("training loss", color="C0")
        if len(rows) == 1 and (only := float(_numbers(rows, "train_loss")[0])) > 0:
            axis.set_ylim(0, 1.3 * only)  # keeps the point apart from the score
        other.set_ylabel(f"validation {metric}; ★ the best", color="C1")
    axis.grid(alpha=0.3)
    if not any(np.isfinite(_numbers(rows, name)).any() for name in ("train_loss", metric)):
        say_empty(axis, "neither the loss nor the score was ever a finite number")


def _numbers(rows: list[dict[str, Any]], name: str) -> NDArray[np.float64]:
    """A column; missing and non-numeric values are NaN."""
    values = [row.get(name) for row in rows]
    return np.array([value if isinstance(value, (int, float)) else np.nan for value in values], dtype=np.float64)


def draw_norms(axis: Axes, updates: Updates) -> None:
    """Gradient norms before clipping, per layer and in total, with clipped updates marked.

    Layers with many updates are drawn as medians, which keeps them distinguishable. Of many layers, those with the
    largest gradients are labelled and the others are grey.
    """
    from unrolled.see.figures.canvas import log_axis, say_empty

    every = -(-len(updates.step) // MOST_MEDIANS)
    step, *layers = (_medians(values, every) for values in (updates.step, *updates.layers.values()))
    few, each = updates.thinned(MOST_POINTS)
    everything = "all" + (f", largest of {each}" if each > 1 else "")
    axis.plot(few.step, few.norm, _mark(len(few.step)), color="black", lw=0.7, label=everything)
    named = sorted(zip(updates.layers, layers, strict=True), key=lambda pair: -np.nan_to_num(pair[1][-1]))
    most = len(named) if len(named) <= MOST_LAYERS else MOST_LAYERS - 1
    for number, (name, norms) in enumerate(named):
        colour, label = (f"C{number}", name) if number < most else (GREY, None)
        if number == most:
            label = f"{len(named) - most} other layers"
        axis.plot(step, norms, _mark(len(step)), lw=1.1, color=colour, label=label, zorder=2 if colour != GREY else 1)
    count, marked = int(updates.clipped.sum()), few.clipped
    if count:
        label, size = f"clipped: {count} of {len(updates.step)} updates", 4 if marked.sum() <= 60 else 2
        axis.plot(few.step[marked], few.norm[marked], "v", ms=size, color=CLIPPED, label=label)
    if updates.limit is not None:
        axis.axhline(updates.limit, color=CLIPPED, ls="--", lw=1, label=f"clip_norm {updates.limit:g}")
    log_axis(axis, np.concatenate([few.norm, *layers]))
    axis.set_ylabel("gradient norm before clipping" + (f"\nlayers: medians of {every} updates" if every > 1 else ""))
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    axis.grid(alpha=0.3)
    if not np.isfinite(few.norm).any():
        say_empty(axis, "no gradient was finite")


def _mark(count: int) -> str:
    """The line style: a single update needs a marker to be visible."""
    return "o-" if count == 1 else "-"


def _medians(values: NDArray[Any], every: int) -> NDArray[Any]:
    """Medians over groups of `every` values.

    >>> _medians(np.array([1.0, 9, 2, 4, 5]), 3)
    array([2. , 4.5])
    """
    return np.array([np.median(values[i : i + every]) for i in range(0, len(values), every)])
