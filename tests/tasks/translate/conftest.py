"""Models and files that the tests here share."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

import unrolled
from tests.fitting import fitting
from unrolled import Model, api
from unrolled.data import Batch
from unrolled.tasks.shared.targets import real_tokens

SMALL: dict[str, Any] = {
    "model.embedding_size": 24,
    "model.encoder.hidden_size": 24,
    "model.decoder.hidden_size": 24,
    "model.encoder.dropout": 0.0,
    "model.decoder.dropout": 0.0,
    "train.batch_size": 16,
    "train.max_steps": 250,
    "train.warmup_steps": 10,
    "train.lr": 0.01,
    "train.average": 0.9,
    "train.label_smoothing": 0.0,
    "train.eval_every": 125,
}


WORDS = {"3": "three", "5": "five", "7": "seven", "8": "eight"}


KINDS: dict[str, dict[str, Any]] = {
    "luong": {},
    "bahdanau": {"model.decoder.attention": "bahdanau", "model.decoder.cell": "gru", "model.decoder.score": "additive"},
    "plain": {"model.decoder.attention": "none", "model.encoder.reverse": True, "model.encoder.bidirectional": False},
    "transformer": {
        "model.kind": "transformer",
        "model.encoder.blocks": 1,
        "model.decoder.blocks": 1,
        "model.encoder.feedforward": 48,
        "model.decoder.feedforward": 48,
    },
}


def real_scores(network: Any, batch: Batch) -> tuple[Tensor, Tensor]:
    """Scores (N, V) and targets (N,) of the real target tokens, the true ones read."""
    real = real_tokens(batch)
    return network.scores(network(batch).features[real]), batch.targets[real]


def numbers() -> list[tuple[str, str]]:
    """Digits, and the words for them from the last to the first."""
    found = []
    for length in (1, 2, 3):
        for digits in itertools.product(WORDS, repeat=length):
            found.append((" ".join(digits), " ".join(WORDS[d] for d in reversed(digits))))
    return found


def table(pairs: list[tuple[str, str]]) -> str:
    return "".join(f"{source}\t{target}\n" for source, target in pairs)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "numbers.tsv"
    path.write_text(table(numbers()))
    return path


@pytest.fixture(scope="module")
def model(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("runs") / "numbers"
    return unrolled.train("translate", train=file, valid=file, out=folder, set=SMALL, quiet=True)


def small(file: Path, folder: Path, **changes: Any) -> Model:
    keys = {key.replace("__", "."): value for key, value in changes.items()}
    return api.train(
        "translate",
        train=file,
        out=folder,
        set=fitting("translate", {**SMALL, "train.max_steps": 3, **keys}),
        quiet=True,
    )
