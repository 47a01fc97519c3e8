"""Predict which bracket closes; accuracy by distance for vanilla RNN, GRU and LSTM.

    python recipes/parentheses.py [--seeds 0,1,2] [--out FOLDER]

A string such as "a(b[]c[" or "[(a)((b)c" ends where a bracket has to close: ) or ]? The answer is the last bracket that
is still open. It may be far back, behind nested pairs of both kinds, so a reader has to keep a stack. Guessing gives 50
%. The distance from the bracket to the end is sampled from 1 to 100, evenly over its logarithm; test strings differ
from training strings. The model reads from left to right, and its last state decides. Settings not named below are the
defaults of `unrolled train classify`. Nothing needs to be downloaded.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import LAST_ONLY, machine, mistakes_told

from unrolled import Model, api
from unrolled.jobs import TrainingJob

DATA = ()  # the recipe makes its own
Rows = Sequence[tuple[str, str]]  # label, string
CELLS = ("rnn", "gru", "lstm")
LONGEST = 100
EDGES = (1, 2, 4, 7, 13, 25, 50, LONGEST + 1)  # distances that are scored together
SETTINGS: dict[str, Any] = {
    **LAST_ONLY,
    "data.level": "char",
    "model.wide": "off",
    "model.bidirectional": False,
    "model.pool": "last",
    "model.hidden_size": 64,
    "model.embedding_size": 16,
    "model.dropout": 0.0,
    "train.epochs": 10,
    "train.lr": 2e-3,
}
TRAINING = 20_000
PAIRS = {"(": ")", "[": "]"}


def inside(source: random.Random, length: int) -> str:
    """Letters and matching pairs, nested at random."""
    found: list[str] = []
    owed: list[str] = []  # closing brackets
    for left in range(length, 0, -1):
        if owed and (len(owed) >= left or source.random() < 0.3):
            found.append(owed.pop())
        elif len(owed) + 2 <= left and source.random() < 0.4:
            found.append(source.choice("(["))
            owed.append(PAIRS[found[-1]])
        else:
            found.append(source.choice("abc"))
    return "".join(found)


def draw(source: random.Random, distance: int) -> tuple[str, str]:
    """Sample the bracket that has to close, and a string that ends `distance` after the bracket it closes."""
    before = "".join(source.choice(("(", "[", inside(source, source.randrange(6)))) for _ in range(source.randrange(6)))
    opened = source.choice("([")
    return PAIRS[opened], before + opened + inside(source, distance - 1)


def strings(seed: int, count: int) -> list[tuple[str, str, int]]:
    """Strings with distances spread evenly over their logarithm."""
    source = random.Random(seed)
    distances = [round(LONGEST ** source.random()) for _ in range(count)]
    return [(*draw(source, distance), distance) for distance in distances]


def trained(settings: dict[str, Any], train: Rows, test: Rows, changes: Sequence[str] = ()) -> tuple[Model, float]:
    """A classifier of (label, string) rows, and the minutes of its training."""
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder) / f"{name}.tsv" for name in ("train", "test")}
        for path, rows in zip(paths.values(), (train, test), strict=True):
            path.write_text("".join(f"{label}\t{text}\n" for label, text in rows))
        files = {"data.train": str(paths["train"]), "data.valid": str(paths["test"])}
        began = time.perf_counter()
        config = api.configure("classify", list(changes), settings | files)
        model = TrainingJob(config).run(Path(folder) / "run", quiet=True)
        return model, (time.perf_counter() - began) / 60


def run(cell: str, seed: int, device: str) -> dict[str, Any]:
    train = [row[:2] for row in strings(2 * seed, TRAINING)]
    known = {text for _, text in train}
    test = [row for row in strings(2 * seed + 1, 10_000) if row[1] not in known]
    settings = {**SETTINGS, "model.cell": cell, "train.seed": seed, "train.device": device}
    model, minutes = trained(settings, train, [row[:2] for row in test])
    answers = model.predict([text for _, text, _ in test])
    right: dict[int, list[bool]] = {start: [] for start in EDGES[:-1]}
    for (label, _, distance), answer in zip(test, answers, strict=True):
        right[max(edge for edge in EDGES[:-1] if edge <= distance)].append(answer.label == label)
    return {
        "cell": cell,
        "seed": seed,
        "accuracy": {start: round(statistics.mean(found), 4) for start, found in right.items()},
        "strings": {start: len(found) for start, found in right.items()},
        "parameters": model.num_parameters,
        "minutes": round(minutes, 2),
    }


def table(runs: list[dict[str, Any]]) -> str:
    lines = [f"{'distance':<12}" + "".join(f"{cell:>24}" for cell in CELLS)]
    for start, end in itertools.pairwise(EDGES):
        line = f"{f'{start}–{end - 1}' if end - 1 > start else start:<12}"
        for cell in CELLS:
            scores = [100 * one["accuracy"][start] for one in runs if one["cell"] == cell]
            line += f"{f'{statistics.mean(scores):.1f} ({min(scores):.1f} to {max(scores):.1f})':>24}"
        lines.append(line)
    return "\n".join(lines)


def picture(runs: list[dict[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = figure.subplots()
    middles = [(a * (b - 1)) ** 0.5 for a, b in itertools.pairwise(EDGES)]
    for cell, color in zip(CELLS, ("tab:gray", "tab:blue", "tab:red"), strict=True):
        for number, one in enumerate(run for run in runs if run["cell"] == cell):
            values = [100 * value for value in one["accuracy"].values()]
            axes.plot(middles, values, color=color, marker=".", lw=1.2, label=cell if number == 0 else None)
    axes.set_xscale("log")
    axes.set_xlabel("distance between the brackets")
    axes.set_ylabel("accuracy, %")
    axes.axhline(50, color="black", lw=0.6, ls=":")
    axes.legend(title="a line per seed")
    axes.grid(alpha=0.3, which="both")
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="not needed: the strings are made from a seed")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    runs = []
    for seed in map(int, options.seeds.split(",")):
        for cell in CELLS:
            runs.append(run(cell, seed, options.device))
            print(cell, seed, runs[-1]["accuracy"], f"{runs[-1]['minutes']} minutes", flush=True)
    print(table(runs))
    options.out.mkdir(parents=True, exist_ok=True)
    facts = {
        "command": "python recipes/parentheses.py",
        "machine": machine(options.device),
        "settings": SETTINGS,
        "runs": runs,
    }
    (options.out / "parentheses.json").write_text(json.dumps(facts, indent=1) + "\n")
    picture(runs, options.out / "parentheses.png")


if __name__ == "__main__":
    with mistakes_told():
        main()
