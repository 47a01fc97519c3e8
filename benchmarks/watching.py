"""The cost of trackers: the share of a run that `train.log` takes.

    python benchmarks/watching.py [--steps 600] [--json benchmarks/results/watching.json]

The default `generate` model trains on the built-in text, once for each tracker. The clock stands around every call of
the tracker, in CPU time of the whole process and its children, so that writer threads count and other programs do not.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import unrolled
from unrolled import UserError
from unrolled.training import StepInfo
from unrolled.training.watching import Callback, WatchedRun, trackers

SETTINGS = {"train.eval_every": 100, "train.device": "cpu"}


def clock() -> float:
    """CPU seconds of this process and of its children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class Timed(Callback):
    """Another callback, with the time that its calls take."""

    def __init__(self, inner: Callback) -> None:
        self.inner, self.seconds, self.wall = inner, dict[str, float](), 0.0

    def _time(self, name: str, call: Callable[[], None]) -> None:
        begun, wall = clock(), time.perf_counter()
        call()
        self.seconds[name] = self.seconds.get(name, 0.0) + clock() - begun
        self.wall += time.perf_counter() - wall

    def start(self, run: WatchedRun) -> None:
        self._time("start", lambda: self.inner.start(run))
        self.begun = clock()

    def update(self, run: WatchedRun, info: StepInfo) -> None:
        self._time("updates", lambda: self.inner.update(run, info))

    def evaluation(self, run: WatchedRun, info: StepInfo) -> None:
        self._time("evaluations", lambda: self.inner.evaluation(run, info))

    def end(self, run: WatchedRun) -> None:
        self.run_seconds = clock() - self.begun
        self._time("end", lambda: self.inner.end(run))


def measured(name: str, steps: int, folder: Path) -> dict[str, Any]:
    """The seconds of one tracker in a run."""
    (tracker,) = trackers([name])
    timed = Timed(tracker)
    unrolled.train(
        "generate", out=folder / name, set={**SETTINGS, "train.max_steps": steps}, quiet=True, callbacks=[timed]
    )
    assert not tracker.broken, f"{name} failed"
    lasting = timed.seconds["updates"] + timed.seconds["evaluations"]
    return {
        "version": version(tracker.package) if tracker.package != "mlflow" else version("mlflow-skinny"),
        "run, CPU seconds": round(timed.run_seconds, 2),
        "start and end, CPU seconds": round(timed.seconds["start"] + timed.seconds["end"], 2),
        "microseconds an update": round(1e6 * timed.seconds["updates"] / steps, 1),
        "milliseconds an evaluation": round(1e3 * timed.seconds["evaluations"] / (steps // 100), 2),
        "share of the run, % (must be 1)": round(100 * lasting / timed.run_seconds, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {
        "command": f"python benchmarks/watching.py --steps {options.steps}",
        "machine": f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads",
        "torch": torch.__version__,
    }
    with tempfile.TemporaryDirectory() as place:
        os.environ.setdefault("MLFLOW_TRACKING_URI", f"sqlite:///{place}/store.db")
        for name in ("tensorboard", "mlflow", "wandb"):
            try:
                found[name] = measured(name, options.steps, Path(place))
            except UserError as error:
                found[name] = str(error)
            print(name, json.dumps(found[name], indent=2))
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
