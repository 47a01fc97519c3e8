"""Training runs as plain data: curves, samples and gradient norms, while they run or after."""

from __future__ import annotations

import io
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.csv
from numpy.typing import NDArray

from unrolled.config.stored import parsed
from unrolled.errors import note
from unrolled.training.folder import CONFIG, METRICS, SAMPLES
from unrolled.training.updates import COLUMNS, UPDATES

MOST_UPDATES = 500  # sent at once; of more, the maximum over neighbours
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Updates:
    """Every update of a run so far, with gradient norms before clipping; non-finite values are NaN."""

    step: NDArray[np.int64]
    loss: Numbers
    rate: Numbers  # the learning rate
    norm: Numbers  # of all gradients
    clipped: NDArray[np.bool_]
    layers: dict[str, Numbers]
    limit: float | None  # train.clip_norm

    @classmethod
    def read(cls, folder: Path) -> Updates | None:
        """Read the updates of a run folder; None before the first update."""
        path = folder / UPDATES
        whole = _whole_lines(path)
        if whole.count("\n") < 2:
            return None
        try:
            table = pyarrow.csv.read_csv(io.BytesIO(whole.encode()))
            columns = {name: table[name].to_numpy().astype(np.float64) for name in table.column_names}
            if missing := set(COLUMNS) - set(columns):
                raise ValueError(f"there is no column {min(missing)}")
        except (ValueError, TypeError, KeyError, pyarrow.ArrowException) as error:
            note(f"{path} is damaged and not shown: {(str(error).splitlines() or [''])[0][:200]}.")
            return None
        finite = {name: np.where(np.isfinite(values), values, np.nan) for name, values in columns.items()}
        return cls(
            np.nan_to_num(columns["step"]).astype(np.int64),
            finite["loss"],
            finite["lr"],
            finite["grad_norm"],
            columns["clipped"] > 0,
            {name: values for name, values in finite.items() if name not in COLUMNS},
            _limit(folder / CONFIG),
        )

    def thinned(self, most: int = MOST_UPDATES) -> tuple[Updates, int]:
        """At most `most` updates, each the maximum over `each` neighbours (clipped if one was), and `each`."""
        each = -(-len(self.step) // most)
        starts = np.arange(0, len(self.step), each)

        def largest(values: Any) -> Any:
            return np.fmax.reduceat(values, starts)  # NaN only if all neighbours are NaN

        step, loss, rate, norm = map(largest, (self.step, self.loss, self.rate, self.norm))
        clipped = np.logical_or.reduceat(self.clipped, starts)
        layers = {name: largest(values) for name, values in self.layers.items()}
        return Updates(step, loss, rate, norm, clipped, layers, self.limit), each


def run_rows(folder: Path) -> dict[str, Any]:
    """The evaluations of a run so far, one column per metric, with their samples and the updates."""
    rows = evaluations(folder)
    names = [name for name in (rows[0] if rows else {}) if isinstance(rows[0][name], (int, float))]
    samples = {row["step"]: row["samples"] for row in _records(folder / SAMPLES) if _is_texts(row.get("samples"))}
    return {
        "step": [row["step"] for row in rows],
        "best": [row["step"] for row in rows if row.get("best")],
        "columns": {name: [_number(row.get(name)) for row in rows] for name in names if name not in ("step", "best")},
        "samples": [[step, texts] for step, texts in sorted(samples.items())],
        "updates": _as_lists(Updates.read(folder)),
    }


def evaluations(folder: Path) -> list[dict[str, Any]]:
    """The records that a run wrote at each evaluation."""
    return _records(folder / METRICS)


def _records(path: Path) -> list[dict[str, Any]]:
    """The JSON objects with a step in a file of lines; damaged lines are skipped with a note."""
    found = []
    for number, line in enumerate(_whole_lines(path).split("\n")[:-1], 1):
        try:
            record = parsed(line)
        except ValueError:
            record = None
        if isinstance(record, dict) and type(record.get("step")) is int:
            found.append(record)
        else:
            note(f"{path}:{number} is damaged and not shown.")
    return found


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _number(value: Any) -> Any:
    return value if isinstance(value, (int, float)) else None


def _limit(config: Path) -> float | None:
    """train.clip_norm, or None if the config cannot be read."""
    try:
        section = tomllib.loads(config.read_text()).get("train", {})
    except (OSError, ValueError, RecursionError):
        return None
    limit = section.get("clip_norm") if isinstance(section, dict) else None
    return float(limit) if isinstance(limit, (int, float)) else None


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
    """The complete lines of a file that may still grow or not exist yet."""
    if not path.exists():
        return ""
    whole, end, _ = path.read_text(errors="replace").rpartition("\n")
    return whole + end
