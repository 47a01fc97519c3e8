"""The host's share of an update: CPU time of making a batch, and of a whole update of a tiny network, for every task.

Data and sizes are those of whole_update_gpu.py, on a CPU. With --against, the Python of another checkout's environment,
the same is measured there in turns, and the figure is the ratio of the two.

    python benchmarks/batches.py [--rounds 5] [--only classifier,…] [--against ../other/.venv/bin/python]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import whole_update_gpu
from measure import machine, row, show, write

import unrolled
from unrolled.data.batching.prefetch import Prefetcher
from unrolled.jobs.target import configure
from unrolled.jobs.train import TrainingJob
from unrolled.training import Run
from unrolled.training.run import Origin

BATCHES = 150  # at most, timed in a round
UPDATES = 30
TINY: dict[str, dict[str, Any]] = {  # networks that take little beside the rest of an update
    "generate": {"model.hidden_size": 8, "model.embedding_size": 8, "model.num_layers": 1},
    "classify": {"model.hidden_size": 8, "model.embedding_size": 8},
    "tag": {"model.hidden_size": 8, "model.embedding_size": 8},
    "forecast": {"model.hidden_size": 8},
    "recognize": {"model.hidden_size": 8, "model.num_layers": 1, "model.channels": [4]},
    "translate": {"model.encoder.hidden_size": 8, "model.decoder.hidden_size": 8},
    "caption": {"model.decoder.hidden_size": 8},
}
KINDS = ("default", "classifier", "tagger", "attention", "forecaster", "recogniser", "captioner")  # one of each task
MUST = {"classifier": "5×", "tagger": "5×", "recogniser": "5×"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="of which the best counts")
    parser.add_argument("--only", default=",".join(KINDS), help=f"some of: {', '.join(KINDS)}")
    parser.add_argument("--against", type=Path, help="the Python of another checkout's environment")
    parser.add_argument("--plain", action="store_true", help="print JSON and write nothing")
    given = parser.parse_args()
    torch.set_num_threads(1)
    names = given.only.split(",")
    if given.plain:
        print(json.dumps([measured(name, given.rounds) for name in names]))
        return
    facts = machine() | {"seeds": "train.seed of the configs, data drawn with random.Random(0)"}
    rows: list[dict[str, Any]] = []
    details: list[dict[str, Any]] = []
    for name in names:
        ours, theirs = measured(name, given.rounds), None
        if given.against is not None:
            theirs = other(given.against, name, given.rounds)
        details.append({"ours": ours, "against": theirs})
        note = f"{ours['batch_us']:.0f} µs, padded {ours['padding_us']:.0f} µs more"
        if theirs is None:
            rows.append(row(f"{name}, a batch", f"{ours['batch_us']:.0f} µs", note=note))
            rows.append(row(f"{name}, an update", f"{ours['update_us']:.0f} µs"))
        else:
            ratio, update = (theirs[key] / ours[key] for key in ("batch_us", "update_us"))
            before = f"{theirs['batch_us']:.0f} → {note}"
            rows.append(row(f"{name}, a batch", ratio, MUST.get(name, "2×"), note=before))
            change = f"{theirs['update_us']:.0f} → {ours['update_us']:.0f} µs"
            rows.append(row(f"{name}, an update of a tiny network", update, note=change))
        show("CPU time of the host", rows[-2:])
    show("CPU time of the host", rows)
    if given.only == ",".join(KINDS):
        write("batches", facts, rows, details)


def other(python: Path, name: str, rounds: int) -> dict[str, Any]:
    """The same measured by another checkout."""
    command = [str(python), __file__, "--plain", "--only", name, "--rounds", str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])[0]
    return found


def measured(name: str, rounds: int) -> dict[str, Any]:
    """Microseconds of CPU time: of a batch, of padding it for a GPU, and of an update of a tiny network."""
    with tempfile.TemporaryDirectory() as folder:
        task, changes, _, _ = whole_update_gpu.ROWS[name](Path(folder))
        keys = {"train.device": "cpu", **changes, "train.max_steps": 10**6, "train.eval_every": 10**6}
        for file in list(Path(folder).iterdir()):
            keys |= {"data.train": str(file), "data.valid": str(whole_update_gpu._head(file))}
        job = TrainingJob(configure(task, [], keys))
        batch, padding = of_batches(job, rounds)
        tiny = TrainingJob(configure(task, [], {**keys, **TINY[task]}))
        update = of_updates(tiny, Path(folder) / "run", rounds)
    return {"kind": name, "commit": commit(), "batch_us": batch, "padding_us": padding, "update_us": update}


def commit() -> str:
    """The commit of the package that is measured."""
    folder = Path(unrolled.__file__).parent
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=folder)
    return found.stdout.strip() or "unknown"


def of_batches(job: TrainingJob, rounds: int) -> tuple[float, float]:
    batches: Any = job.task.batches(job.config, job.assets, job.data.train, training=True)
    batches = batches.batches if isinstance(batches, Prefetcher) else batches
    padding, count = job.traits.padding, min(len(batches), BATCHES)
    batches.order(1)
    made, padded = [], []
    for _ in range(rounds + 1):  # the first warms up
        began = time.thread_time()
        found = [batches[index] for index in range(count)]
        between = time.thread_time()
        if padding is not None:
            for batch in found:
                padding(batch)
        ended = time.thread_time()
        made.append((between - began) / count * 1e6)
        padded.append((ended - between) / count * 1e6)
    return min(made[1:]), min(padded[1:])


def of_updates(job: TrainingJob, folder: Path, rounds: int) -> float:
    folder.mkdir()
    steps = Run(folder, job.trainer(), job.model.save, Origin()).steps()
    times = []
    for _ in range(rounds + 1):
        began = time.process_time()
        for _ in range(UPDATES):
            next(steps)
        times.append((time.process_time() - began) / UPDATES * 1e6)
    steps.close()  # type: ignore[attr-defined]
    return min(times[1:])


if __name__ == "__main__":
    if sys.platform == "win32":
        raise SystemExit("thread_time is too coarse on Windows.")
    main()
