"""Time and memory of a run by its data, vocabulary, width and length, each alone.

    python benchmarks/scale.py [--only vocabulary] [--json benchmarks/results/scale.json]
    python benchmarks/scale.py --draw docs/pictures/scale.png     # from the stored result

Each point is a short run of `generate` in a process of its own, with one thread. The time is CPU time, so that other
programs do not count: of an update the least of several, of a start everything before the first update. Memory is the
most that was resident in updates, less what was before the data was read. Each quantity is fitted by
y = a·xᵠ + b·xᵖ, where the powers are what the arithmetic says (q is 0 but for a Transformer), with the least squares of
relative errors. The fit of all sizes but the largest predicts that one: this tests the extrapolation. The exponent is
the slope between the two largest in logarithms.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import random
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is imported

import numpy as np
import torch
from measure import RESULTS, load, machine

import unrolled
from unrolled.see.figures.canvas import Picture
from unrolled.see.figures.style import WIDTHS, style, text_size
from unrolled.training import StepInfo
from unrolled.training.watching import Callback, WatchedRun

SMALL = {
    "model.embedding_size": 64,
    "model.hidden_size": 64,
    "model.num_layers": 1,
    "model.dropout": 0.0,
    "train.batch_size": 32,
    "train.k1": 50,
    "train.eval_every": 10**6,
    "train.device": "cpu",
    "train.threads": 1,
    "data.valid_fraction": 0.01,
}
UPDATES, FIRST = 9, 3
WIDE = (64, 256)
MB = 1e6


class Sweep(NamedTuple):
    """Runs that differ in one size."""

    unit: str
    sizes: tuple[int, ...]
    of: str  # what is timed: an update, or the start
    time: tuple[int, int]  # the powers of the size by which time grows
    memory: tuple[int, int]  # the same of memory


LINE, SQUARE, BOTH = (0, 1), (0, 2), (1, 2)
SWEEPS = {
    "data": Sweep("MB of text", (3, 9, 27, 54), "start", LINE, LINE),
    "data in a cache": Sweep("MB of text", (3, 9, 27, 81), "start", LINE, LINE),
    "vocabulary": Sweep("words", (12_000, 24_000, 48_000), "update", LINE, LINE),
    "width": Sweep("units", (128, 256, 512, 1024), "update", SQUARE, SQUARE),
    "length": Sweep("steps in a window", (50, 100, 200, 400), "update", LINE, LINE),
    "length of a Transformer": Sweep("steps in a window", (64, 128, 256, 512), "update", BOTH, LINE),
}


def settings(sweep: str, size: int, folder: Path) -> dict[str, Any]:
    """The keys of a run, whose text is written into the folder."""
    draw, file = random.Random(0), folder / "text.txt"
    if sweep.startswith("data"):
        line = "".join(draw.choices("abcdefgh ij\n", k=997)) + "\n"
        with file.open("w") as out:
            for _ in range(size * 1000):  # of a thousand letters each
                out.write(line[draw.randint(0, 500) :] + line[:252])
        cached = {"data.cache": str(folder / "cache")} if "cache" in sweep else {}
        return {**SMALL, **cached}
    if sweep == "vocabulary":
        words = [f"w{number}" for number in range(size - 1)]
        file.write_text(" ".join([*words, *draw.choices(words, k=30_000)]) + "\n")
        return {**SMALL, "data.level": "word", "data.valid_fraction": 0.001, "train.batch_size": 16}
    file.write_text("".join(draw.choices("abcdefgh ij\n", k=400_000)))
    if sweep == "width":
        return {**SMALL, "model.hidden_size": size}
    if sweep == "length":
        return {**SMALL, "train.k1": size}
    kind = {"model.kind": "transformer", "model.heads": 2, "model.hidden_size": None, "train.batch_size": 4}
    return {**{key: value for key, value in SMALL.items() if key != "model.hidden_size"}, **kind, "train.k1": size}


def resident(which: str) -> float:
    """Bytes of this process that are in memory: now (RSS), or at most (HWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) * 1024 for line in lines if line.startswith(f"Vm{which}:"))


class Clock(Callback):
    """The CPU times at which the run starts and updates end; the most memory in updates, and in the whole run."""

    def __init__(self) -> None:
        self.times, self.whole, self.updates = list[float](), 0.0, 0.0

    def start(self, run: WatchedRun) -> None:
        self.times.append(time.process_time())

    def update(self, run: WatchedRun, info: StepInfo) -> None:
        self.times.append(time.process_time())
        if len(self.times) == FIRST:
            self.whole = resident("HWM")
            Path("/proc/self/clear_refs").write_text("5")  # the most memory is that from here on
        elif info.scores is None:  # the last one comes after an evaluation and a checkpoint
            self.updates = resident("HWM")


def point(sweep: str, size: int, more: dict[str, Any] | None = None) -> dict[str, float]:
    """Time and memory of one run, in this process."""
    torch.set_num_threads(1)

    with tempfile.TemporaryDirectory() as name:
        folder, clock = Path(name), Clock()
        keys = {key: value for key, value in settings(sweep, size, folder).items() if value is not None}
        keys |= {"train.max_steps": UPDATES, **(more or {})}
        began, before = time.process_time(), resident("RSS")
        unrolled.train(
            "generate", train=folder / "text.txt", out=folder / "run", set=keys, quiet=True, callbacks=[clock]
        )
        spans = np.diff(clock.times[2:])
        whole = max(clock.whole, resident("HWM"))
        return {
            "start": clock.times[0] - began,
            "update": float(spans.min()),
            "bytes": clock.updates - before,
            "whole": whole - before,
        }


def measured(sweep: str, size: int, more: dict[str, Any] | None = None, rounds: int = 1) -> dict[str, float]:
    """The least of each figure, over runs in processes of their own, which have all modules from this one."""
    found: list[dict[str, float]] = []
    for _ in range(rounds):
        with multiprocessing.get_context("fork").Pool(1) as one:
            found.append(one.apply(point, (sweep, size, more)))
    return {name: min(one[name] for one in found) for name in found[0]}


def fit(sizes: list[float], values: list[float], powers: tuple[int, int]) -> tuple[float, float]:
    """a and b of y = a·xᵠ + b·xᵖ with the least squares of relative errors; neither is negative."""
    y = np.array(values)
    terms = [np.array(sizes) ** power / y for power in powers]
    a, b = np.linalg.lstsq(np.stack(terms, 1), np.ones_like(y), rcond=None)[0]
    if a < 0:
        a, b = 0.0, terms[1].sum() / (terms[1] ** 2).sum()
    if b < 0:
        a, b = terms[0].sum() / (terms[0] ** 2).sum(), 0.0
    return float(a), float(b)


def value(size: Any, a: float, b: float, powers: tuple[int, int]) -> Any:
    """y of a size, or of an array of sizes."""
    return a * size ** powers[0] + b * size ** powers[1]


def fitted(sizes: list[float], values: list[float], powers: tuple[int, int]) -> dict[str, Any]:
    """The fit, its largest relative error, and how well that of the smaller sizes predicts the largest."""
    a, b = fit(sizes, values, powers)
    errors = [abs(value(x, a, b, powers) - y) / y for x, y in zip(sizes, values, strict=True)]
    predicted = value(sizes[-1], *fit(sizes[:-1], values[:-1], powers), powers)
    return {
        "powers": powers,
        "a": float(f"{a:.4g}"),
        "b": float(f"{b:.4g}"),
        "largest error": round(max(errors), 3),
        "largest size, predicted from the others": round(predicted / values[-1] - 1, 3),
        "exponent": round(math.log(values[-1] / values[-2]) / math.log(sizes[-1] / sizes[-2]), 2),
    }


def swept(name: str, rounds: int) -> dict[str, Any]:
    """The points and fits of a sweep."""
    sweep = SWEEPS[name]
    points = []
    for size in sweep.sizes:
        one = measured(name, size, rounds=rounds)
        points.append({"size": size, "seconds": round(one[sweep.of], 5), "MB": round(one["bytes"] / MB, 1)})
        print(f"{name}: {size:,} {sweep.unit}, {1e3 * one[sweep.of]:.1f} ms, {one['bytes'] / MB:.0f} MB", flush=True)
    sizes = [float(size) for size in sweep.sizes]
    seconds, memory = ([float(one[key]) for one in points] for key in ("seconds", "MB"))
    return {
        "unit": sweep.unit,
        "timed": sweep.of,
        "points": points,
        "seconds": fitted(sizes, seconds, sweep.time),
        "MB": fitted(sizes, memory, sweep.memory),
    }


def vocabularies(rounds: int) -> list[dict[str, Any]]:
    """Memory for each weight of an embedding and an output layer: in updates, and in the whole run."""
    rows = []
    for tied, optimizer in ((False, "adamw"), (True, "adamw"), (False, "sgd")):
        of_word: dict[int, dict[str, float]] = {}
        for width in WIDE:
            keys: dict[str, Any] = {"model.embedding_size": width, "model.hidden_size": width, "model.tied": tied}
            keys |= {"train.optimizer": optimizer, "train.k1": 10, "train.max_steps": 4, "train.batch_size": 8}
            few, many = (measured("vocabulary", size, keys, rounds) for size in (20_000, 100_000))
            of_word[width] = {name: (many[name] - few[name]) / 80_000 for name in ("bytes", "whole")}
        weights = (WIDE[1] - WIDE[0]) * (1 if tied else 2)  # of a word, more in the wider network
        narrow, wide = (of_word[width] for width in WIDE)
        row: dict[str, Any] = {"tied": tied, "optimizer": optimizer}
        for name, when in (("bytes", "in updates"), ("whole", "in the whole run")):
            row[f"bytes a weight {when}"] = round((wide[name] - narrow[name]) / weights, 2)
        rows.append(row | {"bytes a word": {width: round(found["bytes"]) for width, found in of_word.items()}})
        print(rows[-1], flush=True)
    return rows


def draw(sweeps: dict[str, Any], path: Path) -> None:
    """Points and fits: time above, memory below, a column for each sweep."""
    with style(text_size(WIDTHS["page"])):
        figure = Picture(1.6 * WIDTHS["page"], 0.62 * WIDTHS["page"])
        axes = figure.subplots(2, len(sweeps))
        for column, (name, sweep) in enumerate(sweeps.items()):
            sizes = np.array([one["size"] for one in sweep["points"]], dtype=float)
            line = np.geomspace(sizes[0], sizes[-1], 100)
            for row, (key, factor) in enumerate((("seconds", 1e3 if sweep["timed"] == "update" else 1), ("MB", 1))):
                axis, values, fit = axes[row, column], [one[key] for one in sweep["points"]], sweep[key]
                axis.plot(sizes, factor * np.array(values), "o", color="C0")
                axis.plot(line, factor * value(line, fit["a"], fit["b"], fit["powers"]), color="C1")
                axis.set_xlim(0)
                axis.set_ylim(0)
                axis.margins(0.1)
            axes[0, column].set_title(name.replace(" of a ", "\nof a ").replace(" in a ", "\nin a "))
            axes[0, column].set_ylabel("ms of an update" if sweep["timed"] == "update" else "s until the first update")
            axes[1, column].set_xlabel(sweep["unit"])
        axes[1, 0].set_ylabel("MB")
        figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", choices=[*SWEEPS, "weights"], action="append")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--draw", type=Path)
    options = parser.parse_args()
    if options.draw:
        draw(json.loads((RESULTS / "scale.json").read_text())["sweeps"], options.draw)
        return
    point("length", 8)  # what is imported at first use is here before the processes are made
    stored = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    for name in options.only or [*SWEEPS, "weights"]:
        stored["weights" if name == "weights" else "sweeps"] = (
            vocabularies(options.rounds)
            if name == "weights"
            else {**stored.get("sweeps", {}), name: swept(name, options.rounds)}
        )
        stored |= {"command": "python benchmarks/scale.py --json benchmarks/results/scale.json"}
        stored |= {"rounds": options.rounds, "load": load(), "machine": machine()}
        if options.json:
            options.json.write_text(json.dumps(stored, indent=2) + "\n")


if __name__ == "__main__":
    main()
