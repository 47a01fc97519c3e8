"""Shared by the benchmarks: interleaved timing, the machine's description, the table and its JSON file."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import unrolled
from unrolled.kernels import ENGINES

RESULTS = Path(__file__).parent / "results"
REST = 0.03  # seconds


def interleaved(
    runs: Mapping[str, Callable[[], object]],
    seconds: float = 2.0,
    least: int = 7,
    settle: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """The best time of each run in seconds; all take turns, so a busy machine slows all of them.

    The clock may be `time.process_time`: what other programs take does not count.

    With `settle` each turn begins with a rest, because the threads of the previous one, above all onnxruntime's, keep
    spinning on the cores that the next one needs. Some untimed runs follow, because threads that slept may wake on one
    core and need some milliseconds to spread. Then three runs are timed.
    """
    for run in runs.values():
        run()
        run()
    best = dict.fromkeys(runs, math.inf)
    rounds, until = 0, time.perf_counter() + seconds
    while rounds < least or time.perf_counter() < until:
        for name, run in runs.items():
            if settle:
                time.sleep(REST)
                warm = time.perf_counter() + REST
                while time.perf_counter() < warm:
                    run()
            for _ in range(3 if settle else 1):
                start = clock()
                run()
                best[name] = min(best[name], clock() - start)
        rounds += 1
    return best


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def machine() -> dict[str, Any]:
    """CPU, threads and versions."""
    try:
        import onnxruntime

        ort = onnxruntime.__version__
    except ImportError:
        ort = "none"
    cpu = next(
        (line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    native = ENGINES.get("native")
    return {
        "cpu": cpu,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "onnxruntime": ort,
        "unrolled": unrolled.__version__,
        "commit": _commit(),
        "native": native.DESCRIPTION if native else "not built",
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
    }


def load() -> float:
    """Processes that ran or waited for a core, a mean of the last minute: says how quiet the machine was."""
    return round(os.getloadavg()[0], 1)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=RESULTS.parent)
    return found.stdout.strip() or "unknown"


def check(name: str, got: torch.Tensor | None, expected: torch.Tensor | None, tolerance: float) -> None:
    """Require a right result before it is timed."""
    assert got is not None
    assert expected is not None
    error = ((got.double() - expected.double()).norm() / expected.double().norm()).item()
    if not error <= tolerance:
        raise SystemExit(f"{name}: relative error {error:.1e} against reference, expected at most {tolerance:.0e}")


def row(what: str, measured: float | str, must: str = "", aim: str = "", note: str = "") -> dict[str, Any]:
    """A line of the table."""
    return {"what": what, "measured": measured, "must": must, "aim": aim, "note": note}


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """Print a table: measurement, value, must, aim."""
    print(f"\n{title}\n{'what':<52} {'measured':>9} {'must':>8} {'aim':>8}")
    for line in rows:
        measured = f"{line['measured']:.2f}×" if isinstance(line["measured"], float) else line["measured"]
        print(f"{line['what']:<52} {measured:>9} {line['must']:>8} {line['aim']:>8}  {line['note']}", flush=True)


def write(name: str, facts: dict[str, Any], rows: list[dict[str, Any]], details: list[dict[str, Any]]) -> None:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": facts, "table": rows, "details": details}, indent=1) + "\n")
    print(f"\nwritten to {path.relative_to(RESULTS.parent.parent)}")
