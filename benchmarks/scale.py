"""What a run's time and memory grow with: data, vocabulary, width and length, each alone.

    python benchmarks/scale.py [--only vocabulary] [--json benchmarks/results/scale.json]
    python benchmarks/scale.py --draw docs/pictures/scale.png     # from the stored result

Each point is a short run of `generate` in a process of its own, with one thread. The time is CPU time, so that other
programs do not count: of an update the least of several, of a start everything before the first update. Memory is the
most that the process had resident, less what it had before it read its data. Each quantity is fitted by y = a + b·xᵖ,
where p is what the arithmetic says, with relative errors. Then it is fitted without the largest size, and predicts it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

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
UPDATES = 9
MB = 1e6


class Sweep(NamedTuple):
    """Runs that differ in one size."""

    unit: str
    sizes: tuple[int, ...]
    of: str  # what is timed: an update, or the start
    time: float  # the power of the size by which time grows
    memory: float | None  # the same of memory; None: it does not grow


SWEEPS = {
    "data": Sweep("MB of text", (2, 6, 18, 54), "start", 1, 1),
    "data in a cache": Sweep("MB of text", (2, 6, 18, 54), "start", 1, None),
    "vocabulary": Sweep("words", (2_000, 6_000, 18_000, 54_000), "update", 1, 1),
    "width": Sweep("units", (128, 256, 512, 1024), "update", 2, 2),
    "length": Sweep("steps in a window", (50, 100, 200, 400), "update", 1, 1),
    "length of a Transformer": Sweep("steps in a window", (64, 128, 256, 512), "update", 2, 1),
}


def settings(sweep: str, size: int, folder: Path) -> dict[str, Any]:
    """The keys of a run, whose text is written into the folder."""
    draw, file = random.Random(0), folder / "text.txt"
    if sweep.startswith("data"):
        line = "".join(draw.choices("abcdefgh ij\n", k=997)) + "\n"
        with file.open("w") as out:
            for _ in range(size * 1000 + 2):
                out.write(line[draw.randint(0, 500) :] + line[:500])
        cached = {"data.cache": str(folder / "cache")} if "cache" in sweep else {}
        return {**SMALL, **cached}
    if sweep == "vocabulary":
        words = [f"w{number}" for number in range(size - 1)]
        file.write_text(" ".join([*words, *draw.choices(words, k=30_000)]) + "\n")
        return {**SMALL, "data.level": "word", "data.valid_fraction": 0.001, "train.batch_size": 8}
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


def point(sweep: str, size: int, more: dict[str, Any] | None = None) -> dict[str, float]:
    """Time and memory of one run, in this process."""
    import torch

    import unrolled
    from unrolled.training import StepInfo
    from unrolled.training.watching import Callback, WatchedRun

    torch.set_num_threads(1)

    class Clock(Callback):
        """The CPU times at which the run starts and updates end."""

        def __init__(self) -> None:
            self.times = list[float]()

        def start(self, run: WatchedRun) -> None:
            self.times.append(time.process_time())

        def update(self, run: WatchedRun, info: StepInfo) -> None:
            self.times.append(time.process_time())

    with tempfile.TemporaryDirectory() as name:
        folder, clock = Path(name), Clock()
        keys = {key: value for key, value in settings(sweep, size, folder).items() if value is not None}
        keys |= {"train.max_steps": UPDATES, **(more or {})}
        unrolled.kernels.ENGINES  # noqa: B018  # they load here, not in the run
        began, before = time.process_time(), resident("RSS")
        unrolled.train(
            "generate", train=folder / "text.txt", out=folder / "run", set=keys, quiet=True, callbacks=[clock]
        )
        spans = np.diff(clock.times[2:])
        return {"start": clock.times[0] - began, "update": float(spans.min()), "bytes": resident("HWM") - before}


def measured(sweep: str, size: int, more: dict[str, Any] | None = None, rounds: int = 1) -> dict[str, float]:
    """The least of each figure, over runs in processes of their own."""
    words = [sys.executable, __file__, "--child", json.dumps([sweep, size, more])]
    found: list[dict[str, float]] = []
    for _ in range(rounds):
        done = subprocess.run(words, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr.decode()[-2000:])
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return {name: min(one[name] for one in found) for name in found[0]}


def fit(sizes: list[float], values: list[float], power: float) -> tuple[float, float]:
    """a and b of y = a + b·xᵖ with the least squares of relative errors; neither is negative."""
    x, y = np.array(sizes) ** power, np.array(values)
    a, b = np.linalg.lstsq(np.stack([1 / y, x / y], 1), np.ones_like(y), rcond=None)[0]
    if a < 0:
        a, b = 0.0, (x / y).sum() / ((x / y) ** 2).sum()
    if b < 0:
        a, b = len(y) / (1 / y).sum(), 0.0
    return float(a), float(b)


def fitted(sizes: list[float], values: list[float], power: float) -> dict[str, Any]:
    """The fit, its largest relative error, and how well that of the smaller sizes predicts the largest."""
    a, b = fit(sizes, values, power)
    errors = [abs(a + b * x**power - y) / y for x, y in zip(sizes, values, strict=True)]
    fewer = fit(sizes[:-1], values[:-1], power)
    predicted = fewer[0] + fewer[1] * sizes[-1] ** power
    return {
        "power": power,
        "a": float(f"{a:.4g}"),
        "b": float(f"{b:.4g}"),
        "largest error": round(max(errors), 3),
        "largest size, predicted from the others": round(predicted / values[-1] - 1, 3),
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
        "MB": fitted(sizes, memory, sweep.memory) if sweep.memory else {"largest": max(memory)},
    }


def vocabularies(rounds: int) -> list[dict[str, Any]]:
    """Memory for each weight of an embedding and an output layer, by optimiser, tied or not."""
    rows = []
    for width in (64, 128):
        for tied in (False, True):
            for optimizer in ("adamw", "sgd"):
                keys = {"model.embedding_size": width, "model.hidden_size": width, "model.tied": tied}
                keys |= {"train.optimizer": optimizer, "train.k1": 10, "train.max_steps": 4}
                few, many = (measured("vocabulary", size, keys, rounds)["bytes"] for size in (20_000, 120_000))
                weights = 100_000 * (width * (1 if tied else 2) + 1)  # and the bias of the output layer
                row = {"width": width, "tied": tied, "optimizer": optimizer, "bytes a weight": (many - few) / weights}
                rows.append(row | {"bytes a weight": round(row["bytes a weight"], 2)})
                print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", choices=[*SWEEPS, "weights"], action="append")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--draw", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(point(*json.loads(options.child))))
        return
    if options.draw:
        from scale_picture import draw

        draw(options.draw)
        return
    from measure import load, machine

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
