"""Shared by the recipes: a part with its data, settings and target; runs that are made once; the table of all runs."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import unrolled
from unrolled import Model, UserError, api
from unrolled.config import fitting
from unrolled.jobs import TrainingJob
from unrolled.recipe_data import RESULTS, store_hashes
from unrolled.tasks import TASKS

Files = tuple[Path, Path]  # to train on, to score
LAST_ONLY: dict[str, Any] = {"train.eval_every": 10**9}  # one evaluation, after the last update, which chooses nothing
GLOVE = Path("glove") / "glove.6B.100d.subset.npz"


@dataclass(frozen=True)
class Part:
    """One result: its data, its settings, its metric and the published score.

    `bars` are the metrics to report and the least that each should reach. `files(data, work)` returns the files to
    train on and to score, `more(data, work)` further keys of the data section, and `scores(model, test)` the metrics,
    unless they are `Model.evaluate`'s. `beside(train, test)` measures a peer in the same run.
    """

    about: str
    task: str
    files: Callable[[Path, Path], Files]
    bars: Mapping[str, float | None]
    published: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    vectors: bool = False
    scores: Callable[[Model, Path], Mapping[str, Any]] = Model.evaluate
    beside: Callable[[Path, Path], dict[str, float]] | None = None
    more: Callable[[Path, Path], dict[str, str]] | None = None
    unit: float = 0.01  # unit of a shown score: 0.01, or 1 for scores up to 100
    decimals: int = 2


def run(script: str, name: str, part: Part, seed: int, data: Path, device: str, changes: list[str]) -> dict[str, Any]:
    """Train and score one model."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        train, test = part.files(data, work)
        settings = {**LAST_ONLY, **part.settings, "train.seed": seed, "train.device": device}
        files = {"data.train": str(train), "data.valid": str(test)}
        if part.more is not None:
            files |= part.more(data, work)
        if part.vectors:
            files["data.vectors"] = str(data / GLOVE)
        began = time.perf_counter()
        keys = fitting(TASKS[part.task]().config_class, settings | files)  # parts share settings
        model = TrainingJob(api.configure(part.task, changes, keys)).run(work / "run", quiet=True)
        minutes = (time.perf_counter() - began) / 60
        scores = part.scores(model, test)
        beside = part.beside(train, test) if part.beside else {}
    return {
        "part": name,
        "seed": seed,
        "scores": {key: value for key, value in scores.items() if not isinstance(value, dict)},
        **({"beside": beside} if beside else {}),
        "minutes": round(minutes, 2),
        "settings": settings,
        "changes": changes,
        "parameters": model.num_parameters,
        "machine": machine(model.device.type),
        "command": f"python recipes/{script}.py --only {name} --seeds {seed} --device {device}",
    }


@contextmanager
def mistakes_told() -> Iterator[None]:
    """End the script with one line, not a traceback, when the user can fix the mistake, such as a missing file."""
    try:
        yield
    except FileNotFoundError as error:
        sys.exit(f"{error.filename} does not exist. The folder that --data names should have it.")
    except UserError as error:
        sys.exit(str(error))


def machine(device: str) -> dict[str, Any]:
    """The machine and versions of a measurement."""
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else _cpu(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "unrolled": unrolled.__version__,
    }


def _cpu() -> str:
    facts = Path("/proc/cpuinfo").read_text().split("\n") if Path("/proc/cpuinfo").exists() else []
    line = next((line for line in facts if line.startswith("model name")), platform.processor())
    return line.split(":")[-1].strip()


def main(script: str, about: str, parts: Mapping[str, Part], seeds: str = "0,1,2", only: str | None = None) -> None:
    """The command line of a recipe: make the missing runs, then show the table of all.

    `only` are the default parts; without it, all.
    """
    options = _options(about, parts, seeds, only or ",".join(parts))
    options.out.mkdir(parents=True, exist_ok=True)
    made = False
    for name in options.only.split(","):
        if name not in parts:
            sys.exit(f"Unknown part {name!r}. Choices: {', '.join(parts)}.")
        for seed in map(int, options.seeds.split(",")):
            path = options.out / f"{script}-{name}-{seed}.json"
            if not path.exists():
                with mistakes_told():
                    result = run(script, name, parts[name], seed, options.data, options.device, options.set)
                path.write_text(json.dumps(result, indent=1) + "\n")
                made = True
                shown = ", ".join(
                    f"{metric} {result['scores'][metric] / parts[name].unit:.{parts[name].decimals}f}"
                    for metric in parts[name].bars
                )
                print(f"{name} seed {seed}: {shown}", flush=True)
    _collect(script, parts, options.out)
    if made:
        store_hashes(Path(__file__).parent / f"{script}.py", options.data, options.out)


def _options(about: str, parts: Mapping[str, Part], seeds: str, only: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("UNROLLED_DATA"), help="folder of the data sets")
    parser.add_argument("--only", default=only, help="parts, with commas: " + ", ".join(parts))
    parser.add_argument("--seeds", default=seeds)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="another setting, to try it")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.data is None:
        sys.exit("Where is the data? Give --data FOLDER, or set UNROLLED_DATA.")
    return options


def _collect(script: str, parts: Mapping[str, Part], out: Path) -> None:
    """Write the table and one file of all runs: those already in it and those with files of their own."""
    stored = out / f"{script}.json"
    runs = (
        {(one["part"], one["seed"]): one for one in json.loads(stored.read_text())["runs"]} if stored.exists() else {}
    )
    for path in sorted(out.glob(f"{script}-*-*.json")):
        one = json.loads(path.read_text())
        runs[one["part"], one["seed"]] = one
    rows = []
    for name, part in parts.items():
        mine = [one for (which, _), one in sorted(runs.items()) if which == name]
        if mine:
            rows += [_row(name, part, metric, mine) for metric in part.bars]
    stored.write_text(json.dumps({"table": rows, "runs": [runs[key] for key in sorted(runs)]}, indent=1) + "\n")


def _row(name: str, part: Part, metric: str, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    scores, bar = [one["scores"][metric] for one in runs], part.bars[metric]
    mean = statistics.mean(scores)
    spread = statistics.stdev(scores) if len(scores) > 1 else None
    beside = {key: statistics.mean(one["beside"][key] for one in runs) for key in runs[0].get("beside", {})}
    minutes = statistics.mean(one["minutes"] for one in runs)
    unit, digits = part.unit, part.decimals
    shown = f"{name:<16} {metric:<16} {mean / unit:6.{digits}f}" + (f" ± {spread / unit:.{digits}f}" if spread else "")
    shown += f" ({len(scores)} seeds)" + (f", bar {bar / unit:.1f}" if bar else "")
    shown += "".join(f", {key} {value / unit:.2f}" for key, value in beside.items())
    print(f"{shown}, {minutes:.1f} minutes. {part.about}. {part.published}".strip())
    return {
        "part": name,
        "about": part.about,
        "metric": metric,
        "mean": mean,
        "spread": spread,
        "seeds": len(scores),
        "bar": bar,
        **({"beside": beside} if beside else {}),
    }
