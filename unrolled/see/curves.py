"""The learning curves of a run, and the gradient norms of its updates (S15)."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unrolled.see.runs import Updates
from unrolled.training.run import METRICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_POINTS = 1500  # of updates; of more, the largest of neighbours
CLIPPED = "#d55e00"


def curves(folder: Path, metric: str) -> bytes | None:
    """A PNG of loss and score, learning rate, and gradient norms over the updates; None before the first evaluation."""
    metrics, updates = folder / METRICS, Updates.read(folder)
    rows = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
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
    steps = [row["step"] for row in rows]
    axis.plot(steps, [row["train_loss"] for row in rows], "o-", ms=3, label="training loss")
    axis.plot(steps, [row[metric] for row in rows], "o-", ms=3, label=f"validation {metric}")
    best = [row for row in rows if row["best"]]
    if best:
        axis.plot(best[-1]["step"], best[-1][metric], "*", ms=14, color="black", label="best")
    axis.legend()
    axis.grid(alpha=0.3)


def draw_norms(axis: Axes, updates: Updates) -> None:
    """The norm of every layer's gradient before clipping, of all of them together, and which updates were clipped."""
    few, each = updates.thinned(MOST_POINTS)
    for number, (name, norms) in enumerate(few.layers.items()):
        style = ("-", "--", ":", "-.")[number // 10 % 4]
        axis.plot(few.step, norms, style, lw=0.8, color=f"C{number % 10}", label=name)
    axis.plot(few.step, few.norm, color="black", lw=1.1, label="all together")
    count = int(updates.clipped.sum())
    if count:
        marked = few.clipped
        axis.plot(few.step[marked], few.norm[marked], "v", ms=4, color=CLIPPED, label=f"clipped: {count} updates")
    if updates.limit is not None:
        axis.axhline(updates.limit, color=CLIPPED, ls="--", lw=1, label=f"clip_norm {updates.limit:g}")
    axis.set_yscale("log")
    axis.set_ylabel("gradient norm before clipping" + (f",\nlargest of {each}" if each > 1 else ""))
    axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    axis.grid(alpha=0.3)
