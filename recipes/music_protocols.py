"""Polyphonic music scored in several ways: what padding, means over pieces, chunks and first steps do to the figure.

    python recipes/music_protocols.py --data FOLDER [--only Nottingham-gru-0] [--work FOLDER] [--out FOLDER]

Chung et al. (2014) do not say how they average. This recipe scores one trained model of `music.py` (trained first, if
there is none) on the same test pieces in every way that could be meant:

- steps: nats of all steps, divided by their number (the way of `music.py`).
- pieces: the mean over pieces of each piece's nats per step.
- later steps: without the first step of each piece, which nothing comes before.
- chunks: pieces are cut into parts of 200 or 100 steps, each read from a fresh state.
- first 200: the first 200 steps of every piece alone.
- padded: pieces are sorted by length, taken in tens, and filled up with silence to the longest of the ten; the padding
  is counted as steps.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import machine, mistakes_told
from music import PAPER, prepare, run
from numpy.typing import NDArray

import unrolled
from unrolled import Model
from unrolled.recipe_data import store_hashes

DATA = ("polymusic/Nottingham.npz", "polymusic/MuseData.npz")
Rolls = list[NDArray[np.uint8]]  # (T, 88) each
BATCH = 10


def pieces_of(path: Path) -> Rolls:
    with np.load(path) as arrays:
        return np.split(arrays["inputs"], np.cumsum(arrays["lengths"])[:-1])


def nats(model: Model, pieces: Sequence[NDArray[np.uint8]]) -> float:
    """Nats per step of some pieces."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pieces.npz"
        lengths = np.array([len(piece) for piece in pieces], dtype=np.int64)
        np.savez(file, inputs=np.concatenate(list(pieces)), lengths=lengths)
        return float(model.evaluate(file)["nll"])


def chunks(pieces: Rolls, length: int) -> Rolls:
    """Parts of `length` steps.

    >>> [len(part) for part in chunks([np.zeros((5, 88), np.uint8)], 2)]
    [2, 2, 1]
    """
    return [piece[start : start + length] for piece in pieces for start in range(0, len(piece), length)]


def padded(pieces: Rolls) -> Rolls:
    """Pieces in tens of similar length, each filled up with silence to the longest of its ten.

    >>> [len(one) for one in padded([np.zeros((length, 88), np.uint8) for length in (3, 1, 2)])]
    [3, 3, 3]
    """
    ordered = sorted(pieces, key=len)
    groups = [ordered[start : start + BATCH] for start in range(0, len(ordered), BATCH)]
    return [np.pad(one, ((0, len(group[-1]) - len(one)), (0, 0))) for group in groups for one in group]


def ways(model: Model, pieces: Rolls) -> dict[str, float]:
    """The score in every way."""
    steps = sum(len(piece) for piece in pieces)
    everything, first = nats(model, pieces), nats(model, [piece[:1] for piece in pieces])
    found = {
        "steps": everything,
        "pieces": float(np.mean([nats(model, [piece]) for piece in pieces])),
        "later steps": (everything * steps - first * len(pieces)) / (steps - len(pieces)),
        "chunks of 200": nats(model, chunks(pieces, 200)),
        "chunks of 100": nats(model, chunks(pieces, 100)),
        "first 200": nats(model, [piece[:200] for piece in pieces]),
        "padded": nats(model, padded(pieces)),
    }
    return {name: round(value, 3) for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("UNROLLED_DATA", ".")))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only", nargs="+", default=["Nottingham-gru-0", "MuseData-gru-0"])
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="for trials")
    parser.add_argument("--work", type=Path, default=Path("runs/music"), help="where the runs are kept")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    for name in options.only:
        run(name, options)
        data, cell, _ = name.split("-")
        files = prepare(options.data / "polymusic" / f"{data}.npz", options.work / "data" / data)
        pieces = pieces_of(files["test"])
        silent = float(np.mean(np.concatenate(pieces).sum(1) == 0))
        scores = ways(unrolled.load(options.work / name), pieces)
        found[name] = {"paper": PAPER[data][cell], "silent steps": round(silent, 4), "set": options.set, **scores}
        print(name, json.dumps(found[name]), flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    facts = {"command": "python recipes/music_protocols.py --data FOLDER", "machine": machine("cpu"), "ways": found}
    (options.out / "music_protocols.json").write_text(json.dumps(facts, indent=1) + "\n")
    store_hashes(Path(__file__), options.data, options.out)


if __name__ == "__main__":
    with mistakes_told():
        main()
