"""Teacher forcing and training on own outputs side by side: cost of an update, and the exposure gap.

    python recipes/exposure.py --data FOLDER [--only g2p,forecast] [--seeds 0,1,2] [--out FOLDER]

g2p: Dutch letters to phonemes (FOLDER/sigmorphon2021_g2p), an LSTM with attention; scores on the dev words, written
greedily. forecast: the Mackey–Glass series with noise, made from a seed, a GRU without the linear path; scores of
roll-outs over 25 steps on an unseen series. Every way of `WAYS` makes the same number of updates. There is one
evaluation, after the last update, which chooses nothing. Costs are processor time of one thread, so that other work on
the machine does not count. A run that has a result in OUT/exposure.json is not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import LAST_ONLY, machine, mistakes_told

from unrolled import api
from unrolled.jobs import TrainingJob
from unrolled.recipe_data import store_hashes

DATA = ("sigmorphon2021_g2p/dut_train.tsv", "sigmorphon2021_g2p/dut_dev.tsv")
STEPS = {"train.feedback": "steps"}
HALF = {"train.teacher_forcing": "share", "train.forced_share": 0.5}
WAYS: dict[str, dict[str, Any]] = {
    "teacher forcing": {},
    "half, parallel": HALF,
    "half, steps": {**HALF, **STEPS},
    "linear, steps": {"train.teacher_forcing": "linear", **STEPS},
    "switch at half, steps": {"train.teacher_forcing": "switch", **STEPS},
    "never, parallel": {"train.teacher_forcing": "never"},
    "never, steps": {"train.teacher_forcing": "never", **STEPS},
}


@dataclass(frozen=True)
class Side:
    """One of the two tasks: its settings, its files, and the scores that are shown, with their decimals."""

    task: str
    files: Callable[[Path | None, Path], dict[str, str]]
    settings: Mapping[str, Any]
    shown: Mapping[str, str]


def words(data: Path | None, work: Path) -> dict[str, str]:
    if data is None:
        sys.exit("Where is the data? Give --data FOLDER, or set UNROLLED_DATA; or take --only forecast.")
    folder = data / "sigmorphon2021_g2p"
    return {"data.train": str(folder / "dut_train.tsv"), "data.valid": str(folder / "dut_dev.tsv")}


def mackey_glass(steps: int, start: float, random: np.random.Generator, delay: int = 17) -> np.ndarray:
    """ẋ = 0.2 x(t − τ) / (1 + x(t − τ)¹⁰) − 0.1 x(t), ten Euler steps a unit of time; every third unit, with noise."""
    fine, back = 10, 10 * delay
    x = np.full(back + 1 + 3 * fine * (steps + 100), start)
    for t in range(back, len(x) - 1):
        x[t + 1] = x[t] + (0.2 * x[t - back] / (1 + x[t - back] ** 10) - 0.1 * x[t]) / fine
    return x[back :: 3 * fine][100 : 100 + steps] + random.normal(0, 0.02, steps)


def series(data: Path | None, work: Path) -> dict[str, str]:
    random = np.random.default_rng(0)
    for name, start, steps in (("train", 1.2, 4000), ("valid", 0.7, 2000)):
        np.savetxt(work / f"{name}.csv", mackey_glass(steps, start, random), header="x", comments="", fmt="%.6f")
    return {"data.train": str(work / "train.csv"), "data.valid": str(work / "valid.csv")}


SIDES = {
    "g2p": Side(
        "translate",
        words,
        {
            "data.source.level": "char",
            "data.target.level": "symbols",
            "model.embedding_size": 64,
            "model.encoder.hidden_size": 64,
            "model.decoder.hidden_size": 96,
            "model.encoder.dropout": 0.1,
            "model.decoder.dropout": 0.1,
            "train.lr": 4e-3,
            "train.max_steps": 600,
            "train.valid_free": 1000,
        },
        {"forced_accuracy": ".4f", "free_accuracy": ".4f", "exposure_gap": ".4f", "exact_match": ".4f"},
    ),
    "forecast": Side(
        "forecast",
        series,
        {
            "model.cell": "gru",
            "model.lags": 0,
            "model.hidden_size": 32,
            "model.dropout": 0.0,
            "train.window": 25,
            "train.batch_size": 16,
            "train.rollout_steps": 25,
            "train.free_running": True,
            "train.max_steps": 600,
        },
        {"teacher_forced_mse": ".5f", "free_running_mse": ".5f", "exposure_gap": ".5f"},
    ),
}


def run(side: Side, way: str, seed: int, files: dict[str, str]) -> dict[str, Any]:
    """Train one model: its scores, and the mean processor time of an update."""
    fixed = {"train.seed": seed, "train.device": "cpu", "train.threads": 1}
    settings = {**LAST_ONLY, **side.settings, **WAYS[way], **fixed}
    trainer = TrainingJob(api.configure(side.task, [], settings | files)).trainer()
    began, spent, scores = time.process_time(), list[float](), dict[str, float]()
    for info in trainer.steps():
        spent.append(time.process_time() - began)
        scores = info.scores or scores
        began = time.process_time()
    seconds = statistics.mean(spent[1:-1])  # the last one includes the evaluation
    return {"way": way, "seed": seed, "ms_per_update": round(1000 * seconds, 2), "scores": scores, "settings": settings}


def table(side: Side, runs: list[dict[str, Any]]) -> str:
    """Means over the seeds, ± their standard deviation."""
    lines = ["| way | ms per update | " + " | ".join(side.shown) + " |", "|---" * (2 + len(side.shown)) + "|"]
    for way in WAYS:
        mine = [one for one in runs if one["way"] == way]
        cells = [f"{statistics.mean(one['ms_per_update'] for one in mine):.0f}"]
        for score, form in side.shown.items():
            values = [one["scores"][score] for one in mine]
            spread = f" ± {statistics.stdev(values):{form}}" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):{form}}{spread}")
        lines.append(f"| {way} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("UNROLLED_DATA"), help="folder of the data sets")
    parser.add_argument("--only", default=",".join(SIDES), help="parts, with commas: " + ", ".join(SIDES))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--device", default="cpu", choices=["cpu", "auto"], help="costs are those of a CPU")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    stored = options.out / "exposure.json"
    facts: dict[str, Any] = json.loads(stored.read_text()) if stored.exists() else {}
    for name in options.only.split(","):
        if name not in SIDES:
            sys.exit(f"Unknown part {name!r}. Choices: {', '.join(SIDES)}.")
        side, runs = SIDES[name], list(facts.get(name, {}).get("runs", []))
        seeds = list(map(int, options.seeds.split(",")))
        made = {(one["way"], one["seed"]) for one in runs}
        with tempfile.TemporaryDirectory() as folder:
            files = side.files(options.data, Path(folder))
            for way, seed in ((way, seed) for seed in seeds for way in WAYS if (way, seed) not in made):
                runs.append(run(side, way, seed, files))
                shown = {key: round(runs[-1]["scores"][key], 5) for key in side.shown}
                print(name, way, seed, f"{runs[-1]['ms_per_update']} ms", shown, flush=True)
                command = f"python recipes/exposure.py --only {name}"
                facts[name] = {"command": command, "machine": machine("cpu"), "runs": runs}
                stored.write_text(json.dumps(facts, indent=1) + "\n")
                store_hashes(Path(__file__), options.data, options.out)
        print(table(side, runs))


if __name__ == "__main__":
    with mistakes_told():
        main()
