"""The learning curves of a run."""

from __future__ import annotations

import io
import json
from pathlib import Path


def curves(metrics: Path, metric: str) -> bytes | None:
    """A PNG of training loss, validation score, learning rate and gradient norm; None before the first evaluation."""
    rows = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
    if not rows:
        return None
    from matplotlib.figure import Figure

    steps = [row["step"] for row in rows]
    figure = Figure(figsize=(9, 6), layout="constrained")
    loss, rate = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    loss.plot(steps, [row["train_loss"] for row in rows], "o-", ms=3, label="training loss")
    loss.plot(steps, [row[metric] for row in rows], "o-", ms=3, label=f"validation {metric}")
    best = [row for row in rows if row["best"]]
    if best:
        loss.plot(best[-1]["step"], best[-1][metric], "*", ms=14, color="black", label="best")
    loss.legend()
    loss.grid(alpha=0.3)
    rate.semilogy(steps, [row["lr"] for row in rows], label="learning rate")
    norms = [max(1e-12, row["grad_norm_max"]) for row in rows]
    rate.semilogy(steps, norms, label="largest gradient norm before clipping")
    rate.set_xlabel("updates")
    rate.legend()
    rate.grid(alpha=0.3)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=120)
    return file.getvalue()
