"""Flickr8k: five captions per picture, from features of 7×7 regions; soft and hard attention against none.

    python recipes/flickr8k.py --data FOLDER [--only soft,hard,…] [--seeds 0] [--device cuda] [--out FOLDER]
        [--set KEY=VALUE ...]

FOLDER, by default $UNROLLED_DATA, holds flickr8k (captions.jsonl with the splits, features.npz). The recipe needs only
unrolled. Captions are lower-cased and lose their punctuation, in training and as references. Features come from an
EfficientNet-Lite0: 48 numbers for each of 7×7 regions, and 1,280 for the whole picture. Every run writes
OUT/flickr8k-PART-SEED.json when it is done, and is not repeated; at the end they become a table and OUT/flickr8k.json.

The 1,000 scored pictures of dev choose nothing: there is one evaluation, after the last update. Choose settings on a
tenth of the training pictures, with the parts that end in -tune.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import Files, Part, main

from unrolled.data import held_out

DATA = ("flickr8k/captions.jsonl", "flickr8k/features.npz")
PUBLISHED = "57.9/38.3/24.5/16.0 (Karpathy & Fei-Fei 2015), soft 67/44.8/29.9/19.5, hard 67/45.7/31.4/21.3 (Xu 2015)"
BARS: dict[str, float | None] = {"bleu1": 57.9, "bleu2": 38.3, "bleu3": 24.5, "bleu4": 16.0, "cider": None}
SETTINGS: dict[str, Any] = {
    "data.level": "word",
    "data.min_count": 3,
    "model.embedding_size": 128,
    "model.encoder.hidden_size": 256,
    "model.encoder.dropout": 0.3,
    "model.decoder.hidden_size": 256,
    "model.decoder.dropout": 0.3,
    "train.batch_size": 64,
    "train.lr": 2e-3,
    "train.epochs": 6,
    "train.average": 0.995,
}
KINDS: dict[str, dict[str, Any]] = {
    "soft": {"model.decoder.attention": "soft"},
    "hard": {"model.decoder.attention": "hard"},
    "transformer": {
        "model.kind": "transformer",
        "model.decoder.blocks": 3,
        "model.encoder.feedforward": 512,
        "model.decoder.feedforward": 512,
        "train.lr": 1e-3,
        "train.warmup_steps": 500,
    },
    "vector": {"model.decoder.attention": "none"},
    "soft-grid": {"model.decoder.attention": "soft"},
}


def plain(text: str) -> str:
    """Lower case without punctuation, as in published scores."""
    return " ".join(re.sub(r"[^\w\s]", " ", text.lower()).split())


def pictures(tune: bool) -> Callable[[Path, Path], Files]:
    """Tables of captions: train and dev, or two parts of train."""

    def files(data: Path, work: Path) -> Files:
        rows = [json.loads(line) for line in (data / "flickr8k" / "captions.jsonl").read_text().splitlines()]
        parts = [[row for row in rows if row["split"] == name] for name in ("train", "dev")]
        if tune:
            parts = [[parts[0][i] for i in chosen] for chosen in held_out([r["image"] for r in parts[0]], 0.1)]
        paths = work / "train.jsonl", work / "test.jsonl"
        for path, part in zip(paths, parts, strict=True):
            lines = ({"image": row["row"], "captions": [plain(text) for text in row["captions"]]} for row in part)
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return paths

    return files


def features(regions: bool, vectors: bool) -> Callable[[Path, Path], dict[str, str]]:
    """An npz file in `caption`'s format; a picture's name is its row."""

    def more(data: Path, work: Path) -> dict[str, str]:
        path = work / "features.npz"
        with np.load(data / "flickr8k" / "features.npz") as file:
            found = {}
            if regions:
                found["regions"] = (file["grid"] * file["grid_scale"]).astype(np.float16)
            if vectors:
                found["vectors"] = (file["pooled"] * file["pooled_scale"]).astype(np.float16)
        np.savez(path, **found)
        return {"data.images": str(path)}

    return more


def part(kind: str, tune: bool = False) -> Part:
    about = f"{kind}, a tenth of train held out" if tune else f"{kind}, dev"
    bars = dict.fromkeys(BARS) if tune else BARS
    return Part(
        about,
        "caption",
        pictures(tune),
        bars,
        "" if tune else PUBLISHED,
        SETTINGS | KINDS[kind],
        more=features(regions=kind != "vector", vectors=kind != "soft-grid"),
        unit=1.0,
    )


PARTS = {kind: part(kind) for kind in KINDS}
CHOOSING = {f"{kind}-tune": part(kind, tune=True) for kind in KINDS}

if __name__ == "__main__":
    main("flickr8k", __doc__, PARTS | CHOOSING, seeds="0", only=",".join(PARTS))
