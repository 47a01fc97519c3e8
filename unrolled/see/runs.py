"""Training runs as plain data: curves, samples and gradient norms, while they run or after."""

from __future__ import annotations

import io
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
from numpy.typing import NDArray

from unrolled.training.folder import CONFIG, METRICS, SAMPLES
from unrolled.training.updates import COLUMNS, UPDATES

MOST_UPDATES = 500  # sent at once; of more, the largest of neighbours
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Updates:
    """Every update of a run so far, and the norms of its gradients before clipping; not finite ones are NaN."""

    step: NDArray[np.int64]
    loss: Numbers
    rate: Numbers  # the learning rate
    norm: Numbers  # of all gradients
    clipped: NDArray[np.bool_]
    layers: dict[str, Numbers]
    limit: float | None  # train.clip_norm

    @classmethod
    def read(cls, folder: Path) -> Updates | None:
        """What a run folder has; None before the first."""
        whole = _whole_lines(folder / UPDATES)
        if whole.count("\n") < 2:
            return None
        table = pyarrow.csv.read_csv(io.BytesIO(whole.encode()))
        columns = {name: table[name].to_numpy().astype(np.float64) for name in table.column_names}
        finite = {name: np.where(np.isfinite(values), values, np.nan) for name, values in columns.items()}
        limit = tomllib.loads((folder / CONFIG).read_text())["train"].get("clip_norm")
        return cls(
            columns["step"].astype(np.int64),
            finite["loss"],
            finite["lr"],
            finite["grad_norm"],
            columns["clipped"] > 0,
            {name: values for name, values in finite.items() if name not in COLUMNS},
            None if limit == "none" else limit,
        )

    def thinned(self, most: int = MOST_UPDATES) -> tuple[Updates, int]:
        """At most so many, each the largest of its neighbours and clipped if one was; and how many each stands for."""
        each = -(-len(self.step) // most)
        starts = np.arange(0, len(self.step), each)

        def largest(values: Any) -> Any:
            return np.fmax.reduceat(values, starts)  # NaN only where all are

        step, loss, rate, norm = map(largest, (self.step, self.loss, self.rate, self.norm))
        clipped = np.logical_or.reduceat(self.clipped, starts)
        layers = {name: largest(values) for name, values in self.layers.items()}
        return Updates(step, loss, rate, norm, clipped, layers, self.limit), each


def run_rows(folder: Path) -> dict[str, Any]:
    """The evaluations of a run so far, a column for each number, what it said at each of them, and its updates."""
    rows = [json.loads(line) for line in _whole_lines(folder / METRICS).splitlines()]
    names = [name for name in (rows[0] if rows else {}) if isinstance(rows[0][name], (int, float))]
    samples = (json.loads(line) for line in _whole_lines(folder / SAMPLES).splitlines())
    said = {row["step"]: row["samples"] for row in samples}
    return {
        "step": [row["step"] for row in rows],
        "best": [row["step"] for row in rows if row.get("best")],
        "columns": {name: [row.get(name) for row in rows] for name in names if name not in ("step", "best")},
        "samples": [[step, texts] for step, texts in sorted(said.items())],
        "updates": _as_lists(Updates.read(folder)),
    }


def _as_lists(updates: Updates | None) -> dict[str, Any] | None:
    if updates is None:
        return None
    few, each = updates.thinned()

    def numbers(values: Numbers) -> list[float | None]:
        return [None if np.isnan(value) else float(f"{value:.4g}") for value in values.tolist()]

    return {
        "step": few.step.tolist(),
        "each": each,
        "loss": numbers(few.loss),
        "norm": numbers(few.norm),
        "clipped": np.flatnonzero(few.clipped).tolist(),
        "clipped_in_all": int(updates.clipped.sum()),
        "made": len(updates.step),
        "layers": {name: numbers(values) for name, values in few.layers.items()},
        "limit": updates.limit,
    }


def _whole_lines(path: Path) -> str:
    """The whole lines of a file that may be growing, or may not be there yet."""
    if not path.exists():
        return ""
    whole, end, _ = path.read_text().rpartition("\n")
    return whole + end
