"""An answer has the same bits alone and in any batch: stored models of every kind, and wider fresh ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.fitting import fitting
from tests.see.models import BLOCKS, HEARD, LABELS, PAIRS, SEEN, SHORT, TAGS, facts_of, write_files
from tests.sharing import made_once
from unrolled import api
from unrolled.model import Model

COMPAT = Path(__file__).parent.parent / "compat"
STORED = sorted(COMPAT.glob("*/*.safetensors"))
WORDS = ("one", "two", "three", "fine", "poor", "3", "5", "7", "and", "make", "Ada", "Hopper", "in", "York", ".", "xyz")
ONCE = {"train.max_steps": 1}
WIDE = {"model.hidden_size": 72, "model.embedding_size": 40}
WIDE_PAIRS = {
    **PAIRS,
    **ONCE,
    "model.embedding_size": 40,
    "model.encoder.hidden_size": 72,
    "model.decoder.hidden_size": 72,
}
ATTENDING = {"model.kind": "transformer", "model.heads": 3, "model.feedforward": 200}
WRITING = {**SHORT, **ONCE, **WIDE}
# wider than the vectors of a processor, and no multiple of them
FRESH: dict[str, tuple[str, str, dict[str, Any]]] = {
    "classify-pools": ("classify", "mood.tsv", {**LABELS, **ONCE, **WIDE, "model.pool": "attention+mean+max+last"}),
    "classify-transformer": ("classify", "mood.tsv", {**LABELS, **ONCE, **WIDE, **ATTENDING, "model.pool": "mean"}),
    "classify-mix": ("classify", "mood.tsv", {**LABELS, **ONCE, **WIDE, "model.num_layers": 3, "model.combine": "mix"}),
    "classify-norm": ("classify", "mood.tsv", {**LABELS, **ONCE, **WIDE, "model.layer_norm": True}),
    "tag-crf": ("tag", "spans.txt", {**TAGS, **ONCE, **WIDE}),
    "tag-transformer": ("tag", "spans.txt", {**TAGS, **ONCE, **WIDE, **ATTENDING}),
    "generate-lstm": ("generate", "book.txt", {**WRITING, "model.num_layers": 2}),
    "generate-gru": ("generate", "book.txt", {**WRITING, "model.cell": "gru"}),
    "generate-gelu": ("generate", "book.txt", {**WRITING, "model.cell": "rnn", "model.nonlinearity": "gelu"}),
    "generate-average": (
        "generate",
        "book.txt",
        {**WRITING, "model.kind": "feedforward", "model.context_mode": "average"},
    ),
    "generate-transformer": (
        "generate",
        "book.txt",
        {**WRITING, "model.kind": "transformer", "model.heads": 3, "model.blocks": 2, "model.context": 16},
    ),
    "translate-luong": ("translate", "numbers.tsv", WIDE_PAIRS),
    "translate-bahdanau": (
        "translate",
        "numbers.tsv",
        {
            **WIDE_PAIRS,
            "model.decoder.attention": "bahdanau",
            "model.decoder.cell": "gru",
            "model.decoder.num_layers": 2,
        },
    ),
    "translate-transformer": (
        "translate",
        "numbers.tsv",
        {**WIDE_PAIRS, **BLOCKS, "model.encoder.feedforward": 200, "model.decoder.feedforward": 200},
    ),
    "recognize": (
        "recognize",
        "sounds/train.tsv",
        {**HEARD, **ONCE, "model.hidden_size": 72, "model.channels": [12, 20]},
    ),
    "recognize-transformer": (
        "recognize",
        "lines/train.tsv",
        {**HEARD, **ONCE, **ATTENDING, "model.hidden_size": 72, "model.channels": [12]},
    ),
    "recognize-mdlstm": (
        "recognize",
        "lines/train.tsv",
        {**HEARD, **ONCE, "model.kind": "mdlstm", "model.hidden_size": 20},
    ),
    "caption": (
        "caption",
        "pictures/train.tsv",
        {
            **SEEN,
            **ONCE,
            "model.encoder.hidden_size": 72,
            "model.decoder.hidden_size": 72,
            "model.encoder.channels": [12, 24],
        },
    ),
}
SHARED = ("classify-pools", "generate-transformer")  # between threads too
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "classify": [{}],
    "tag": [{"probabilities": True}],
    "translate": [{}, {"beam": 4, "n_best": 3, "attention": True}],
    "caption": [{"beam": 3, "n_best": 2, "attention": True}],
    "recognize": [{}, {"beam": 8, "n_best": 3}],
    "generate": [{"seed": 7, "max_tokens": 20}, {"beam": 3, "n_best": 2, "max_tokens": 6}],
    "forecast": [{}],
}


def bits(answer: Any) -> Any:
    """An answer as parts that are equal only if every bit is."""
    if dataclasses.is_dataclass(answer) and not isinstance(answer, type):
        return type(answer).__name__, *(bits(getattr(answer, one.name)) for one in dataclasses.fields(answer))
    if isinstance(answer, dict):
        return tuple((key, bits(value)) for key, value in answer.items())
    if isinstance(answer, (list, tuple)):
        return tuple(map(bits, answer))
    if isinstance(answer, (np.ndarray, Tensor)):
        return tuple(answer.shape), np.asarray(answer).tobytes()
    return answer.hex() if isinstance(answer, float) else answer


def inputs_of(model: Model, chance: Random, count: int) -> list[Any]:
    """Inputs of many lengths for a model."""
    numbers, task = np.random.default_rng(chance.randrange(2**32)), model.task.name
    if task == "caption":
        return [numbers.integers(0, 255, (24, 30, 3)).astype(np.uint8) for _ in range(count)]
    if task == "recognize":
        if model.assets.reader.kind == "audio":
            return [numbers.normal(0, 0.1, chance.randint(2000, 16000)).astype(np.float32) for _ in range(count)]
        return [numbers.integers(0, 255, (14, chance.randint(20, 90))).astype(np.uint8) for _ in range(count)]
    if task == "forecast":
        width = len(model.assets.roles.inputs)
        return [numbers.normal(size=(chance.randint(20, 60), width)) for _ in range(count)]
    if task == "tag" and model.assets.frames:
        return [numbers.normal(size=(chance.randint(1, 50), *model.assets.frames)) for _ in range(count)]
    most = 6 if task == "generate" else 30
    return [" ".join(chance.choices(WORDS, k=chance.randint(1, most))) for _ in range(count)]


def check(model: Model, chance: Random, count: int) -> None:
    """Answers to some inputs alone, and in batches of any composition and order."""
    asked = inputs_of(model, chance, count)
    audio = model.task.name == "recognize" and model.assets.reader.kind == "audio"
    for options in OPTIONS[model.task.name]:
        given = {**options, **({"rate": model.assets.reader.rate} if audio else {})}
        alone = [bits(model.predict(one, **given)) for one in asked]
        for size in (2, count):
            chosen = chance.sample(range(count), size)
            seeds = {"seed": [options["seed"]] * size} if "seed" in options else {}
            found = model.predict([asked[i] for i in chosen], **{**given, **seeds})
            assert [bits(one) for one in found] == [alone[i] for i in chosen], (options, size)


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> Random:
    return Random(request.node.name)


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("path", [one for one in STORED if "forecast" not in one.stem], ids=lambda path: path.stem)
def test_stored_models_answer_alone_as_in_a_batch(path: Path, chance: Random) -> None:
    with threads(1):
        check(api.load(path), chance, 4)


@pytest.mark.parametrize("kind", FRESH)
def test_wide_models_answer_alone_as_in_a_batch(kind: str, chance: Random) -> None:
    task, file, keys = FRESH[kind]
    data = made_once("answers-apart-data", write_files)

    def train(out: Path) -> None:
        api.train(task, train=data / file, out=out, set=fitting(task, keys, **facts_of(file)), quiet=True)

    model = api.load(made_once(f"answers-apart-{kind}", train))
    with threads(1):
        check(model, chance, 6)
    if kind in SHARED:
        with threads(2):
            check(model, chance, 5)
