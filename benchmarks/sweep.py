"""Sweeps: the cost of a trial beside a bare run, and the quality of the search beside random search.

    python benchmarks/sweep.py [--trials 12] [--seconds 60] [--seeds 2] [--json benchmarks/results/sweep.json]

A trial's cost: tiny runs of `classify` (30 updates) in a sweep, beside `unrolled.train` of the same configs in the same
process, in CPU seconds. Quality: TREC's six question classes (UNROLLED_DATA names the folder of the data), the best
validation accuracy that tpe with the median pruner, and random search without one, reach in equal CPU time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import optuna
import torch

import unrolled
from tests.sweeps.tiny import write_words
from unrolled.sweeps.trial import TrialOutcome, TrialRunner

TINY = {"model.hidden_size": 8, "train.max_steps": 30, "train.eval_every": 10, "train.threads": 1}
SEARCH = {
    "train.lr": "log(1e-4, 1)",
    "train.batch_size": "choice(16, 32, 64)",
    "train.clip_norm": "log(0.03, 30)",
    "model.hidden_size": "logint(8, 64)",
    "model.dropout": "uniform(0, 0.7)",
    "model.cell": "choice(lstm, gru, rnn)",
}
REAL = {"data.label_column": "1", "data.text_column": "3", "train.epochs": 1, "train.threads": 1}


def overhead(trials: int, folder: Path) -> dict[str, Any]:
    """CPU seconds of a trial, and of the same run alone."""
    data = write_words(folder / "words.tsv", 200)
    spaces = {**TINY, "train.lr": "log(1e-3, 1e-1)"}
    unrolled.train("classify", train=data, set=TINY, out=folder / "warm", quiet=True)
    inside: list[float] = []
    begun = time.process_time()
    with Timed(inside):
        found = unrolled.sweep(
            "classify", train=data, set=spaces, trials=trials, pruner="none", out=folder / "sweep", quiet=True
        )
    whole = time.process_time() - begun
    bare: list[float] = []
    for row in found.trials:
        begun = time.process_time()
        with mock.patch("unrolled.jobs.driving.curves", return_value=None):
            unrolled.train(
                "classify",
                train=data,
                set={**TINY, "train.lr": row["train.lr"]},
                out=folder / f"run-{row['number']}",
                quiet=True,
            )
        bare.append(time.process_time() - begun)
    return {
        "trials": trials,
        "a bare run without curves.png, CPU seconds": round(statistics.median(bare), 3),
        "the run of a trial, CPU seconds": round(statistics.median(inside), 3),
        "a trial with asking, telling and files, CPU seconds": round(whole / trials, 3),
        "overhead of a trial, CPU seconds": round(whole / trials - statistics.median(bare), 3),
    }


class Timed:
    """A block in which the CPU seconds of every trial are noted."""

    def __init__(self, seconds: list[float], look: Callable[[TrialOutcome], None] = lambda outcome: None) -> None:
        self.seconds, self.look, self.run = seconds, look, TrialRunner.run

    def __enter__(self) -> None:
        def run(runner: TrialRunner, asked: Any) -> TrialOutcome:
            begun = time.process_time()
            outcome = self.run(runner, asked)
            self.seconds.append(time.process_time() - begun)
            self.look(outcome)
            return outcome

        self.patch = mock.patch.object(TrialRunner, "run", run)
        self.patch.start()

    def __exit__(self, *_: object) -> None:
        self.patch.stop()


class Enough(KeyboardInterrupt):
    """Ends a sweep whose CPU time is spent."""


def quality(sampler: str, pruner: str, seconds: float, seed: int, data: Path, folder: Path) -> dict[str, Any]:
    """The best score of a search after some CPU seconds, and at the half of them."""
    spent, path = list[float](), list[tuple[float, float]]()
    counts: dict[str, int] = {}

    def look(outcome: TrialOutcome) -> None:
        counts[outcome.state] = counts.get(outcome.state, 0) + 1
        if outcome.state == "complete" and outcome.score is not None and sum(spent) <= seconds:
            path.append((sum(spent), max([outcome.score, *(score for _, score in path)])))
        if sum(spent) >= seconds:
            raise Enough

    options: dict[str, Any] = {"sampler": sampler, "pruner": pruner, "seed": seed, "trials": 10_000}
    try:
        with Timed(spent, look), mock.patch("unrolled.sweeps.outputs.Outputs.draw", return_value=None):
            unrolled.sweep("classify", train=data, set={**REAL, **SEARCH}, out=folder, quiet=True, **options)
    except Enough:
        pass
    at = [
        (limit, max((score for when, score in path if when <= limit), default=0.0)) for limit in (seconds / 2, seconds)
    ]
    return {"trials": counts, **{f"best accuracy after {limit:g} CPU s": round(score, 4) for limit, score in at}}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = {
        "command": f"python benchmarks/sweep.py --trials {options.trials} --seconds {options.seconds:g} "
        f"--seeds {options.seeds}",
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, one thread",
        "load average": round(os.getloadavg()[0], 1),
        "torch": torch.__version__,
        "optuna": optuna.__version__,
    }
    with tempfile.TemporaryDirectory() as place:
        found["overhead"] = overhead(options.trials, Path(place))
        print(json.dumps(found["overhead"], indent=2), flush=True)
        data = Path(os.environ.get("UNROLLED_DATA", ""), "trec", "train.tsv")
        if not data.is_file():
            found["quality"] = "UNROLLED_DATA names no folder with trec/train.tsv"
        else:
            searches = {"tpe, median": ("tpe", "median"), "random, none": ("random", "none")}
            rows: dict[str, list[dict[str, Any]]] = {name: [] for name in searches}
            for seed in range(options.seeds):
                for name, (sampler, pruner) in searches.items():
                    folder = Path(place) / f"{sampler}-{seed}"
                    rows[name].append(quality(sampler, pruner, options.seconds, seed, data, folder))
                    print(name, seed, json.dumps(rows[name][-1]), flush=True)
            found["quality"] = {"data": "TREC, 6 classes, one epoch a trial", "space": SEARCH, "seeds": rows}
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
