"""Training runs as plain data: curves, samples and gradient norms, while they run or after."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from unrolled.training.run import METRICS, SAMPLES


def run_rows(folder: Path) -> dict[str, Any]:
    """The evaluations of a run so far, a column for each number, and what it said at each of them."""
    rows = _lines(folder / METRICS)
    names = [name for name in (rows[0] if rows else {}) if isinstance(rows[0][name], (int, float))]
    columns = {name: [row.get(name) for row in rows] for name in names if name not in ("step", "best")}
    norms: dict[str, list[Any]] = {}
    for row in rows:
        for part in row.get("grad_norms", {}):
            norms.setdefault(part, [other.get("grad_norms", {}).get(part) for other in rows])
    samples = {row["step"]: row["samples"] for row in _lines(folder / SAMPLES)}
    return {
        "step": [row["step"] for row in rows],
        "best": [row["step"] for row in rows if row.get("best")],
        "columns": columns,
        "grad_norms": norms,
        "samples": [[step, texts] for step, texts in sorted(samples.items())],
    }


def _lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file that may be growing."""
    if not path.exists():
        return []
    whole, _, _ = path.read_text().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]
