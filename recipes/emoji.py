"""Emoji: 32×32 pixels → the official name, for names not in training; beside the name of the nearest picture.

    python recipes/emoji.py --data FOLDER [--only soft,…] [--seeds 0] [--device cuda] [--out FOLDER]
        [--set KEY=VALUE ...]

FOLDER, by default $UNROLLED_DATA, holds emoji (emoji.jsonl, emoji.npz). The recipe needs only unrolled. Names are
lower-cased, and a colon or comma is a word of its own. Every run writes OUT/emoji-PART-SEED.json when it is done, with
twenty names beside the model's, and is not repeated; at the end they become a table and OUT/emoji.json.

The 740 scored pictures of dev choose nothing: there is one evaluation, after the last update. Choose settings on a
tenth of the training names, with the parts that end in -tune.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from common import Files, Part, main
from numpy.typing import NDArray

from unrolled import Model
from unrolled.data import held_out
from unrolled.metrics.captions import caption_scores

DATA = ("emoji/emoji.jsonl", "emoji/emoji.npz")
SHOWN = 20
SETTINGS: dict[str, Any] = {
    "data.level": "word",
    "data.lowercase": True,
    "model.encoder.channels": [32, 64, 128],
    "model.encoder.hidden_size": 256,
    "model.decoder.hidden_size": 256,
    "model.encoder.dropout": 0.4,
    "model.decoder.dropout": 0.4,
    "train.batch_size": 64,
    "train.lr": 2e-3,
    "train.epochs": 60,
    "train.shift": 3,
    "train.average": 0.998,
}
KINDS: dict[str, dict[str, Any]] = {
    "soft": {"model.decoder.attention": "soft"},
    "hard": {"model.decoder.attention": "hard"},
    "vector": {"model.decoder.attention": "none"},
    "transformer": {"model.kind": "transformer", "train.lr": 1e-3, "train.warmup_steps": 500},
}


def tidy(name: str) -> str:
    return re.sub(r"([:,])", r" \1", name.lower())


def names(tune: bool) -> Callable[[Path, Path], Files]:
    """Tables of names: train and dev, or two parts of train without a name in common."""

    def files(data: Path, work: Path) -> Files:
        rows = [json.loads(line) for line in (data / "emoji" / "emoji.jsonl").read_text().splitlines()]
        lines = [{"image": i, "captions": [tidy(row["name"])], "split": row["split"]} for i, row in enumerate(rows)]
        parts = [[line for line in lines if line["split"] == name] for name in ("train", "dev")]
        if tune:
            parts = [[parts[0][i] for i in chosen] for chosen in held_out([r["captions"][0] for r in parts[0]], 0.1)]
        paths = work / "train.jsonl", work / "test.jsonl"
        for path, part in zip(paths, parts, strict=True):
            path.write_text("".join(json.dumps(line) + "\n" for line in part))
        return paths

    return files


def pictures(data: Path, work: Path) -> dict[str, str]:
    """The pixels in `caption`'s format; a picture's name is its row."""
    np.savez(work / "pictures.npz", pictures=pixels_of(data / "emoji" / "emoji.npz"))
    return {"data.images": str(work / "pictures.npz")}


def pixels_of(path: Path) -> NDArray[np.uint8]:
    with np.load(path) as file:
        found: NDArray[np.uint8] = file[file.files[0]]
    return found


def scored(model: Model, test: Path) -> Mapping[str, Any]:
    """The usual scores, and the model's names for twenty pictures."""
    rows = _rows(test)
    some = rows[:: max(1, len(rows) // SHOWN)][:SHOWN]
    pixels = pixels_of(test.parent / "pictures.npz")
    said = model.predict([pixels[row["image"]] for row in some])
    examples = [[row["captions"][0], str(answer)] for row, answer in zip(some, said, strict=True)]
    return {**model.evaluate(test), "examples": examples}


def nearest(train: Path, test: Path) -> dict[str, float]:
    """Scores of the nearest training picture's name, by Euclidean distance between pixels."""
    pixels = pixels_of(train.parent / "pictures.npz").reshape(-1, 32 * 32 * 3).astype(np.float32)
    known, asked = _rows(train), _rows(test)
    table = pixels[[row["image"] for row in known]]
    squares = np.square(table).sum(1)
    outputs = []
    for row in asked:
        place = int(np.argmin(squares - 2 * (table @ pixels[row["image"]])))
        outputs.append(known[place]["captions"][0])
    scores = caption_scores(outputs, [row["captions"] for row in asked], lowercase=True)
    return {f"nearest {name}": getattr(scores, name) for name in ("exact_match", "bleu4", "chrf", "cider")}


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def part(kind: str, tune: bool = False) -> Part:
    about = f"{kind}, a tenth of the training names held out" if tune else f"{kind}, dev, names unseen in training"
    return Part(
        about,
        "caption",
        names(tune),
        {"exact_match": None, "bleu4": None, "chrf": None, "cider": None},
        settings=SETTINGS | KINDS[kind],
        scores=scored,
        beside=nearest,
        more=pictures,
        unit=1.0,
    )


PARTS = {kind: part(kind) for kind in KINDS}
CHOOSING = {f"{kind}-tune": part(kind, tune=True) for kind in KINDS}

if __name__ == "__main__":
    main("emoji", __doc__, PARTS | CHOOSING, seeds="0", only="soft")
