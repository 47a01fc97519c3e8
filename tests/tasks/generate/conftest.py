"""Models and files that the tests here share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import unrolled
from tests.fitting import fitting
from unrolled import Model, api

TEXT = "\n".join(f"{a} and {b} make {a + b}" for a in range(12) for b in range(12)) + "\n"


SMALL: dict[str, Any] = {
    "model.hidden_size": 24,
    "model.num_layers": 1,
    "model.embedding_size": None,
    "train.batch_size": 8,
    "train.k1": 20,
    "train.epochs": 10,
    "train.max_steps": 60,
    "train.lr": 0.02,
}


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "book.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def model(book: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("runs") / "book"
    return unrolled.train("generate", train=book, out=folder, set=SMALL, quiet=True)


def small(book: Path, folder: Path, **changes: Any) -> Model:
    keys = {key.replace("__", "."): value for key, value in changes.items()}
    return api.train(
        "generate", train=book, out=folder, set=fitting("generate", {**SMALL, "train.max_steps": 4, **keys}), quiet=True
    )
