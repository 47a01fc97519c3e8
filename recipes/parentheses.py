"""Do the parentheses match? Accuracy by distance: vanilla RNN against GRU against LSTM.

    python recipes/parentheses.py [--seeds 0,1,2] [--out FOLDER]

A string opens with ( or [ and ends with ) or ]; between them stand letters and pairs that do match, so that the reader
must keep the first bracket in mind all the way: "(a[]bc)" is balanced, "(a[]bc]" is not. Half of the strings are
balanced, so guessing gives 50 %. For each distance from the first bracket to the last a model is trained on strings of
that distance alone: what it learns it must learn over that distance, with no shorter strings to begin on. The test
strings are others than the training strings. One reading from left to right, the last state decides; the rest are the
defaults of `unrolled train classify`. Nothing needs to be downloaded.
"""

from __future__ import annotations

import argparse
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
DISTANCES = (5, 10, 20, 40, 80, 160)
SETTINGS: dict[str, Any] = {
    **LAST_ONLY,
    "data.level": "char",
    "model.ngrams": 0,
    "model.bidirectional": False,
    "model.pool": "last",
    "model.hidden_size": 48,
    "model.embedding_size": 16,
    "model.dropout": 0.0,
    "train.epochs": 5,
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


def strings(seed: int, distance: int, count: int) -> list[tuple[str, str]]:
    source = random.Random(f"{seed} {distance}")
    return [draw(source, distance) for _ in range(count)]


def run(cell: str, distance: int, seed: int) -> dict[str, Any]:
    train = strings(2 * seed, distance, 10_000)
    known = {text for _, text in train}
    test = [pair for pair in strings(2 * seed + 1, distance, 2_000) if pair[1] not in known]
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder) / f"{name}.tsv" for name in ("train", "test")}
        for path, rows in zip(paths.values(), (train, test), strict=True):
            path.write_text("".join(f"{label}\t{text}\n" for label, text in rows))
        files = {"data.train": str(paths["train"]), "data.valid": str(paths["test"])}
        settings = {**SETTINGS, "model.cell": cell, "train.seed": seed}
        began = time.perf_counter()
        model = api.Job(api.configure("classify", [], settings | files)).run(Path(folder) / "run", quiet=True)
        seconds = time.perf_counter() - began
        accuracy = model.evaluate(paths["test"])["accuracy"]
    return {
        "cell": cell,
        "distance": distance,
        "seed": seed,
        "accuracy": accuracy,
        "strings": len(test),
        "parameters": model.num_parameters,
        "seconds": round(seconds),
    }


def scores(runs: list[dict[str, Any]], cell: str, distance: int) -> list[float]:
    return [100 * one["accuracy"] for one in runs if (one["cell"], one["distance"]) == (cell, distance)]


def table(runs: list[dict[str, Any]]) -> str:
    lines = [f"{'distance':<10}" + "".join(f"{cell:>22}" for cell in CELLS)]
    for distance in DISTANCES:
        line = f"{distance:<10}"
        for cell in CELLS:
            found = scores(runs, cell, distance)
            line += f"{f'{statistics.mean(found):.1f} ({min(found):.1f}–{max(found):.1f})':>22}"
        lines.append(line)
    return "\n".join(lines)


def picture(runs: list[dict[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = figure.subplots()
    for cell, color in zip(CELLS, ("tab:gray", "tab:blue", "tab:red"), strict=True):
        found = [scores(runs, cell, distance) for distance in DISTANCES]
        axes.plot(DISTANCES, [statistics.mean(values) for values in found], color=color, marker="o", label=cell)
        axes.fill_between(DISTANCES, list(map(min, found)), list(map(max, found)), color=color, alpha=0.15)
    axes.set_xscale("log", base=2)
    axes.set_xticks(DISTANCES, list(map(str, DISTANCES)))
    axes.set_xlabel("distance between the brackets")
    axes.set_ylabel("accuracy, %")
    axes.axhline(50, color="black", lw=0.6, ls=":")
    axes.legend(title="mean of the seeds, and their range")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    runs = []
    for seed in map(int, options.seeds.split(",")):
        for distance in DISTANCES:
            for cell in CELLS:
                runs.append(one := run(cell, distance, seed))
                shown = f"{100 * one['accuracy']:.1f} %, {one['seconds']} s"
                print(f"{cell}, distance {distance}, seed {seed}: {shown}", flush=True)
    print(table(runs))
    options.out.mkdir(parents=True, exist_ok=True)
    facts = {"command": "python recipes/parentheses.py", "machine": machine("cpu"), "settings": SETTINGS, "runs": runs}
    (options.out / "parentheses.json").write_text(json.dumps(facts, indent=1) + "\n")
    picture(runs, options.out / "parentheses.png")


if __name__ == "__main__":
    main()
