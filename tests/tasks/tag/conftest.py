"""Models and files that the tests here share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import unrolled
from tests.fitting import fitting
from unrolled import Model, api
from unrolled.models.tagger import Tagger
from unrolled.tasks import Request

SMALL: dict[str, Any] = {
    "model.hidden_size": 16,
    "model.embedding_size": 12,
    "model.letter_size": 6,
    "model.letter_hidden": 6,
    "model.dropout": 0.1,
    "train.batch_size": 8,
    "train.max_steps": 60,
    "train.lr": 0.02,
}


NAMES = ("Ada", "Grace Hopper", "Alan Turing", "Kurt", "Emmy Noether", "Paul")


VERBS = ("saw", "met", "called", "knew")


PLACES = ("Rome", "New York", "Oslo", "San Marino")


def chunked() -> list[list[tuple[str, str, str]]]:
    """Little sentences with names and places, as (word, part of speech, span)."""
    sentences = []
    for i, name in enumerate(NAMES):
        for j, verb in enumerate(VERBS):
            other, place = NAMES[(i + j + 1) % len(NAMES)], PLACES[(i + j) % len(PLACES)]
            row = []
            for text, kind in ((name, "PER"), (verb, ""), (other, "PER"), ("in", ""), (place, "LOC"), (".", "")):
                for k, word in enumerate(text.split()):
                    tag = "O" if not kind else f"{'I' if k else 'B'}-{kind}"
                    row.append((word, "NNP" if kind else "VB" if text == verb else "X", tag))
            sentences.append(row)
    return sentences


def columns_text() -> str:
    return "\n".join("".join(" ".join(word) + "\n" for word in sentence) for sentence in chunked())


@pytest.fixture(scope="module")
def chunks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "chunks.txt"
    path.write_text(columns_text())
    return path


@pytest.fixture(scope="module")
def model(chunks: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("runs") / "chunks"
    return unrolled.train("tag", train=chunks, valid=chunks, out=folder, set=SMALL, quiet=True)


def small(file: Path, folder: Path, **changes: Any) -> Model:
    keys = {key.replace("__", "."): value for key, value in changes.items()}
    facts = {"inputs": "frames" if file.suffix in (".npz", ".csv") else "text"}
    settings = fitting("tag", {**SMALL, "train.max_steps": 3, **keys}, **facts)
    return api.train("tag", train=file, out=folder, set=settings, quiet=True)


def network_of(model: Model) -> Tagger:
    assert isinstance(model.network, Tagger)
    return model.network


def api_sentence(text: str) -> Any:
    from unrolled.data.readers.tagged.sentences import Sentence

    return Sentence(tuple(text.split()))


def run(model: Model, **request: Any) -> str:
    return "".join(model.runner.run(Request(**request)))
