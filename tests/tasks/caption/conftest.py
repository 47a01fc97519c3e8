"""Models and files that the tests here share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import unrolled
from tests.fitting import fitting
from unrolled import Model

SMALL: dict[str, Any] = {
    "model.embedding_size": 24,
    "model.encoder.hidden_size": 24,
    "model.encoder.channels": [8, 16],
    "model.encoder.grid": 4,
    "model.encoder.blocks": 1,
    "model.encoder.feedforward": 48,
    "model.encoder.dropout": 0.0,
    "model.decoder.hidden_size": 24,
    "model.decoder.blocks": 1,
    "model.decoder.feedforward": 48,
    "model.decoder.dropout": 0.0,
    "train.batch_size": 16,
    "train.max_steps": 160,
    "train.warmup_steps": 10,
    "train.lr": 0.01,
    "train.average": 0.9,
    "train.label_smoothing": 0.0,
    "train.eval_every": 80,
}


COLOURS = {"red": (220, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 220)}


PLACES = {"top left": (0, 0), "top right": (0, 8), "bottom left": (8, 0), "bottom right": (8, 8)}


def scenes() -> list[tuple[str, NDArray[np.uint8], list[str]]]:
    """A square of a colour in a corner of 16×16 pixels, at several sizes; said in two ways."""
    random = np.random.default_rng(0)
    found = []
    for colour, value in COLOURS.items():
        for place, (y, x) in PLACES.items():
            for side in (4, 5, 6):
                pixels = random.integers(225, 256, (16, 16, 3), dtype=np.uint8)
                pixels[y + 1 : y + 1 + side, x + 1 : x + 1 + side] = value
                name = f"{colour}-{place.replace(' ', '-')}-{side}.png"
                found.append((name, pixels, [f"a {colour} square {place}", f"{place} a {colour} square"]))
    return found


def write(folder: Path, references: int = 2) -> Path:
    """captions.jsonl and the folder images/."""
    (folder / "images").mkdir(parents=True)
    table = folder / "captions.jsonl"
    with table.open("w") as file:
        for name, pixels, captions in scenes():
            Image.fromarray(pixels).save(folder / "images" / name)
            file.write(json.dumps({"image": name, "captions": captions[:references]}) + "\n")
    return table


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("scenes"))


def facts(images: str) -> dict[str, str]:
    """Values of keys that are left to a file of pictures or features."""
    if not images.endswith(".npz"):
        return {"pictures": "pixels"}
    with np.load(images) as file:
        if "vectors" in file:
            return {"pictures": "vector", "model__decoder__attention": "none"}
        return {"pictures": "regions" if "regions" in file else "pixels"}


def train(table: Path, folder: Path, **changes: Any) -> Model:
    keys = {key.replace("__", "."): value for key, value in changes.items()}
    images = {"data.images": str(table.parent / "images")}
    settings = fitting("caption", {**SMALL, **images, **keys}, **facts(str(keys.get("data.images", ""))))
    return unrolled.train("caption", train=table, valid=table, out=folder, set=settings, quiet=True)


@pytest.fixture(scope="module")
def model(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return train(table, tmp_path_factory.mktemp("runs") / "scenes")


def features(folder: Path, *, vectors: bool = False) -> Path:
    """The mean colours of 4×4 regions in an npz file, or all of them as one vector; captions by row number."""
    grid = np.stack([pixels.reshape(4, 4, 4, 4, 3).mean((1, 3)) for _, pixels, _ in scenes()])
    arrays: dict[str, Any] = {"vectors": grid.reshape(len(grid), -1)} if vectors else {"regions": grid}
    np.savez(folder / "features.npz", **arrays)
    table = folder / "rows.jsonl"
    rows = (json.dumps({"image": i, "captions": captions}) for i, (_, _, captions) in enumerate(scenes()))
    table.write_text("\n".join(rows))
    return table


KINDS: dict[str, dict[str, Any]] = {
    "hard": {"model__decoder__attention": "hard"},
    "luong": {"model__decoder__attention": "luong", "model__decoder__score": "general"},
    "no regions": {"model__decoder__attention": "none", "model__decoder__cell": "gru"},
    "transformer": {"model__kind": "transformer"},
}
