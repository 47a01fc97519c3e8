"""Do the parentheses match? Accuracy by distance: vanilla RNN against GRU against LSTM.

    python recipes/parentheses.py [--seeds 0,1,2] [--out FOLDER]

A string opens with ( or [ and ends with ) or ]; between them stand letters and pairs that do match, so that the reader
must keep the first bracket in mind all the way: "(a[]bc)" is balanced, "(a[]bc]" is not. Half of the strings are
balanced, so guessing gives 50 %. The distance from the first bracket to the last is drawn from 2 to 200, short and long
ones alike often, and the test strings are others than the training strings. One reading from left to right, the last
state decides; all else are the defaults of `unrolled train classify`. Nothing needs to be downloaded.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from common import LAST_ONLY, machine

from unrolled import api

CELLS = ("rnn", "gru", "lstm")
LONGEST = 200
EDGES = (2, 5, 10, 20, 35, 50, 75, 100, 150, LONGEST + 1)  # distances that are scored together
SETTINGS: dict[str, Any] = {
    **LAST_ONLY,
    "data.level": "char",
    "model.ngrams": 0,
    "model.bidirectional": False,
    "model.pool": "last",
    "model.hidden_size": 64,
    "model.embedding_size": 16,
    "model.dropout": 0.0,
    "train.epochs": 6,
    "train.device": "cpu",
}
PAIRS = {"(": ")", "[": "]"}


def draw(source: random.Random, distance: int) -> tuple[str, str]:
    """A label and a string whose last character stands `distance` after its first."""
    first = source.choice("([")
    right = source.random() < 0.5
    inner: list[str] = []
    pending: list[str] = []  # closing brackets still owed
    for left in range(distance - 1, 0, -1):
        if pending and (len(pending) >= left or source.random() < 0.3):
            inner.append(pending.pop())
        elif len(pending) + 2 <= left and source.random() < 0.2:
            opened = source.choice("([")
            inner.append(opened)
            pending.append(PAIRS[opened])
        else:
            inner.append(source.choice("abcdef"))
    last = PAIRS[first] if right else PAIRS["[" if first == "(" else "("]
    return "balanced" if right else "unbalanced", first + "".join(inner) + last


def strings(seed: int, count: int) -> list[tuple[str, str]]:
    """Distances spread evenly over their logarithm, so that there are as many from 10 to 20 as from 100 to 200."""
    source = random.Random(seed)
    return [draw(source, round(2 * (LONGEST / 2) ** source.random())) for _ in range(count)]


def run(cell: str, seed: int) -> dict[str, Any]:
    train = strings(2 * seed, 12_000)
    known = {text for _, text in train}
    test = [pair for pair in strings(2 * seed + 1, 20_000) if pair[1] not in known]
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder) / f"{name}.tsv" for name in ("train", "test")}
        for path, rows in zip(paths.values(), (train, test), strict=True):
            path.write_text("".join(f"{label}\t{text}\n" for label, text in rows))
        files = {"data.train": str(paths["train"]), "data.valid": str(paths["test"])}
        settings = {**SETTINGS, "model.cell": cell, "train.seed": seed}
        began = time.perf_counter()
        model = api.Job(api.configure("classify", [], settings | files)).run(Path(folder) / "run", quiet=True)
        minutes = (time.perf_counter() - began) / 60
    answers = model.predict([text for _, text in test])
    right: dict[int, list[bool]] = {start: [] for start in EDGES[:-1]}
    for (label, text), answer in zip(test, answers, strict=True):
        right[max(edge for edge in EDGES[:-1] if edge <= len(text) - 1)].append(answer.label == label)
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
        line = f"{f'{start}–{end - 1}':<12}"
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
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    runs = []
    for seed in map(int, options.seeds.split(",")):
        for cell in CELLS:
            runs.append(run(cell, seed))
            print(cell, seed, runs[-1]["accuracy"], f"{runs[-1]['minutes']} minutes", flush=True)
    print(table(runs))
    options.out.mkdir(parents=True, exist_ok=True)
    facts = {"command": "python recipes/parentheses.py", "machine": machine("cpu"), "settings": SETTINGS, "runs": runs}
    (options.out / "parentheses.json").write_text(json.dumps(facts, indent=1) + "\n")
    picture(runs, options.out / "parentheses.png")


if __name__ == "__main__":
    main()
