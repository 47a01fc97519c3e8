"""The host's share of an update, for every task: CPU time of making a batch, of the loop around an update (batch, log,
report), and of a whole update of a tiny network.

Data and sizes are those of whole_update_gpu.py, on a CPU. With --against, the Python of another checkout's environment,
the same is measured there in turns, and the figure is the ratio of the two.

    python benchmarks/batches.py [--rounds 5] [--only classifier,…] [--against ../other/.venv/bin/python]
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
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
from unrolled.training.report import Report
from unrolled.training.run import Origin
from unrolled.training.update import Numbers, Read

BATCHES = 150  # at most, timed in a round
UPDATES = 10  # in a round
SECONDS = 0.3  # of CPU time at least, or 50 rounds
TINY: dict[str, dict[str, Any]] = {  # networks that take little beside the rest of an update
    "generate": {"model.hidden_size": 8, "model.embedding_size": 8, "model.num_layers": 1},
    "classify": {"model.hidden_size": 8, "model.embedding_size": 8},
    "tag": {"model.hidden_size": 8, "model.embedding_size": 8},
    "forecast": {"model.hidden_size": 8},
    "recognize": {"model.hidden_size": 8, "model.num_layers": 1, "model.channels": [4]},
    "translate": {"model.encoder.hidden_size": 8, "model.decoder.hidden_size": 8},
    "caption": {"model.decoder.hidden_size": 8},
}
KINDS = ("classifier", "tagger", "recogniser", "attention", "forecaster", "captioner", "default")  # one of each task
WHAT = {
    "batch_us": "a batch",
    "loop_us": "the loop around an update",
    "update_us": "an update of a tiny network",
}
MUST = {"classifier": "5×", "tagger": "5×", "recogniser": "5×"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="at least, of which the best counts")
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
        lines = [line(name, key, ours, theirs) for key in WHAT]
        show("CPU time of the host", lines)
        rows += lines
        if given.only == ",".join(KINDS):
            write("batches", facts, rows, details)
    show("CPU time of the host", rows)


def line(name: str, key: str, ours: dict[str, Any], theirs: dict[str, Any] | None) -> dict[str, Any]:
    """A line of the table: microseconds, or the ratio to those of another checkout."""
    now, what = f"{ours[key]:.0f} µs", f"{name}, {WHAT[key]}"
    if theirs is None:
        return row(what, now)
    bar = MUST.get(name, "2×") if key == "batch_us" else ""
    return row(what, theirs[key] / ours[key], bar, note=f"{theirs[key]:.0f} → {now}")


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
        update = of_loop(tiny, Path(folder) / "run", rounds, with_network=True)
        loop = of_loop(tiny, Path(folder) / "loop", rounds, with_network=False)
    return {
        "kind": name,
        "commit": commit(),
        "batch_us": batch,
        "padding_us": padding,
        "loop_us": loop,
        "update_us": update,
    }


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
    found = [batches[index] for index in range(count)]

    def make() -> None:
        for index in range(count):
            batches[index]

    def pad() -> None:
        for batch in found if padding is not None else ():
            assert padding is not None
            padding(batch)

    return best(make, rounds) / count, best(pad, rounds) / count


def of_loop(job: TrainingJob, folder: Path, rounds: int, *, with_network: bool) -> float:
    """An update in the loop of the command with its log and report; without the network, of what is around it."""
    trainer = job.trainer()
    if not with_network:
        trainer.updater = NoUpdate(len(trainer.clipping.parameters))  # type: ignore[assignment]
    folder.mkdir()
    steps = Run(folder, trainer, job.model.save, Origin()).steps()
    with Path("/dev/null").open("w") as nowhere:
        report = Report(job.goal, trainer.total_steps, stream=nowhere)

        def update() -> None:
            for _ in range(UPDATES):
                report.step(next(steps), trainer.progress)

        found = best(update, rounds) / UPDATES
    steps.close()  # type: ignore[attr-defined]
    return found


class NoUpdate:
    """In place of an update: its numbers, and nothing computed."""

    averages = False

    def __init__(self, parameters: int) -> None:
        self.norms = torch.rand(parameters)

    def run(self, chunks: Any, lr: float, step: int = 0) -> Read:
        return Read(Numbers(1.0, 100, 1.0, False, lr, False, self.norms))


def best(run: Callable[[], None], rounds: int) -> float:
    """The least CPU time of `rounds` runs or more, in microseconds; all threads count."""
    run()  # warms up
    least, spent, number = math.inf, 0.0, 0
    while number < rounds or (spent < SECONDS and number < 50):
        began = time.process_time()
        run()
        took = time.process_time() - began
        least, spent, number = min(least, took), spent + took, number + 1
    return least * 1e6


if __name__ == "__main__":
    if sys.platform == "win32":
        raise SystemExit("thread_time is too coarse on Windows.")
    main()
