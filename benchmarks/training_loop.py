"""The overhead of the training loop, and its speed against plain torch.nn.

    python benchmarks/training_loop.py [--steps 20] [--rounds 7] [--json FILE]

Three ways to train the same language model (LSTM 2×256, batch 64, windows of 100) on the same text take turns in one
run, a block of steps each. The figure is the median over rounds of the ratio of their speeds:

    loop    our training loop, as `unrolled train` runs it
    bare    our layers and softmax alone: forward, backward, optimiser, on one batch over and over
    plain   the same written plainly with torch.nn.LSTM: embedding, LSTM, linear, clipping, AdamW, carried state
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from unrolled import api
from unrolled.data import Batch
from unrolled.jobs import TrainingJob
from unrolled.training import Origin, Run

SETTINGS = {
    "model.num_layers": 2,
    "model.hidden_size": 256,
    "model.embedding_size": 256,
    "model.dropout": 0.0,
    "train.batch_size": 64,
    "train.k1": 100,
    "train.epochs": 1000,
    "train.eval_every": 10**9,
}


class Plain(nn.Module):
    """The same model in plain torch."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 256)
        self.lstm = nn.LSTM(256, 256, num_layers=2, batch_first=True)
        self.head = nn.Linear(256, vocabulary)

    def forward(self, ids: Tensor, state: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        output, state = self.lstm(self.embedding(ids), state)
        return self.head(output), state


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20, help="updates in a block")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    job = TrainingJob(api.configure("generate", extra=SETTINGS))
    ways: dict[str, Iterator[None]] = {"loop": loop(job), "bare": bare(job), "plain": plain(job)}
    check(job)
    for way in ways.values():
        run(way, 3)
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, way in ways.items():
            speeds[name].append(options.steps * 6400 / run(way, options.steps))
    found = {
        "machine": f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads",
        "torch": torch.__version__,
        "characters/s": {name: round(statistics.median(values)) for name, values in speeds.items()},
        "loop / bare (must be 0.9)": ratio(speeds["loop"], speeds["bare"]),
        "loop / plain (must be 1.2)": ratio(speeds["loop"], speeds["plain"]),
    }
    print(json.dumps(found, indent=2))
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


def ratio(a: list[float], b: list[float]) -> float:
    return round(statistics.median(x / y for x, y in zip(a, b, strict=True)), 3)


def run(way: Iterator[None], steps: int) -> float:
    began = time.perf_counter()
    for _ in range(steps):
        next(way)
    return time.perf_counter() - began


def loop(job: TrainingJob) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        for _ in Run(Path(folder), job.trainer(), job.model.save, Origin()).steps():
            yield


def bare(job: TrainingJob) -> Iterator[None]:
    batch = first_batch(job)
    network = job.task.build(job.config, job.assets)
    optimizer = torch.optim.AdamW(network.parameters())
    while True:
        scores, _ = network(batch.inputs)
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), batch.targets.flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        yield


def plain(job: TrainingJob) -> Iterator[None]:
    batches = job.task.batches(job.config, job.assets, job.data.train, training=True)
    network = Plain(len(job.assets))
    optimizer = torch.optim.AdamW(network.parameters())
    while True:
        state = None
        for index in range(len(batches)):
            batch = batches[index]
            scores, state = network(batch.inputs, state)
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), batch.targets.flatten())
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            state = tuple(s.detach() for s in state)
            yield


def first_batch(job: TrainingJob) -> Batch:
    return job.task.batches(job.config, job.assets, job.data.train, training=True)[0]


def check(job: TrainingJob) -> None:
    """Require the same loss from the same weights before anything is timed."""
    network, other = job.task.build(job.config, job.assets), Plain(len(job.assets))
    renamed = {
        name.replace("layer.", "lstm.").replace("scores.", "head."): value
        for name, value in network.state_dict().items()
    }
    other.load_state_dict(renamed)
    batch = first_batch(job)
    scores, _ = network(batch.inputs)
    expected, _ = other(batch.inputs, None)
    assert torch.allclose(scores, expected, atol=1e-4), "the networks differ: nothing is timed"


if __name__ == "__main__":
    main()
