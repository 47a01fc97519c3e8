"""Batches of all tasks against ones that are made plainly, example by example: the same bits in the same order."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.tasks import plain_batches as plain
from unrolled.data import Batch
from unrolled.data.batching.prefetch import Prefetcher
from unrolled.data.batching.ragged_windows import FrameSequence, RaggedWindows
from unrolled.data.readers.labelled import Labelled
from unrolled.data.readers.tagged.frames import TaggedFrames
from unrolled.data.readers.tagged.sentences import Sentence
from unrolled.jobs.target import configure
from unrolled.tasks import TASKS
from unrolled.tasks.contract import Data
from unrolled.tasks.corpus import Corpus

LONG = "Donaudampfschifffahrtsgesellschaftskapitänsmütze"  # more letters than a word's letters that count


def assert_same(got: Batch, expected: Batch) -> None:
    fields = {name: value for name, value in vars(got).items() if name != "more"}
    wanted = {name: value for name, value in vars(expected).items() if name != "more"}
    assert list(got.more) == list(expected.more)
    for name in (*fields, *(f"more {one}" for one in got.more)):
        one, other = fields.get(name), wanted.get(name)
        if name.startswith("more "):
            one, other = got.more[name[5:]], expected.more[name[5:]]
        if other is None:
            assert one is None, name
            continue
        assert one is not None, name
        assert (one.dtype, one.shape, one.is_contiguous()) == (other.dtype, other.shape, True), name
        bits = [tensor.contiguous().view(torch.uint8) for tensor in (one, other)] if one.numel() else [one, other]
        assert torch.equal(*bits), name


def compare(batches: Any, make: Callable[[Any, int, int], Batch]) -> None:
    """All batches of two epochs; `make(batches, index, epoch)` makes the same plainly."""
    batches = batches.batches if isinstance(batches, Prefetcher) else batches
    for epoch in range(2):
        batches.order(epoch)
        assert len(batches)
        for index in range(len(batches)):
            assert_same(batches[index], make(batches, index, epoch))


def texts() -> list[str]:
    """Empty, of one word, with unknown and repeated words, long words, signs, and long ones."""
    draw, known = random.Random(0), ["a", "The", "the", "cat", "sat.", "naïve", "it's", LONG, "<unk>", "<pad>", "猫だ"]
    some = [" ".join(draw.choices(known, k=draw.randint(1, 12))) for _ in range(40)]
    return ["", "cat", *some, " ".join(known * 9), "", "the the the"]


UNSEEN = ["", "dog", "bird Ünknown ß 犬 cat", "cat", "zzz " * 30]


@pytest.mark.parametrize("level", ["word", "char", "bpe"])
@pytest.mark.parametrize("changes", [{}, {"model.ngrams": 0}, {"train.consistency": 0.5}])
def test_texts_to_classify(level: str, changes: dict[str, Any]) -> None:
    keys = {"data.level": level, "train.batch_size": 7, "train.class_weights": "balanced", "model.ngrams": 500}
    examples = [Labelled(text, ("abc"[number % 3],), "") for number, text in enumerate(texts())]
    other = [Labelled(text, ("ad"[number % 2],), "") for number, text in enumerate(UNSEEN)]
    classified(examples, other, {**keys, **changes})


def test_several_labels() -> None:
    examples = [Labelled(text, tuple("abcd"[: number % 4]), "") for number, text in enumerate(texts())]
    other = [Labelled(text, ("a", "z"), "") for text in UNSEEN]
    keys = {"data.multi_label": True, "train.batch_size": 7, "train.class_weights": "balanced", "model.ngrams": 500}
    classified(examples, other, keys)


def test_numbers_of_texts() -> None:
    examples = [Labelled(text, (str(number / 7),), "") for number, text in enumerate(texts())]
    classified(examples, examples[:9], {"data.kind": "number", "train.batch_size": 7})


def test_frames_to_classify() -> None:
    examples = [Labelled(one, ("ab"[len(one) % 2],), "") for one in frames(4)]
    classified(examples, examples[:5], {"train.batch_size": 4})


def classified(examples: list[Labelled], other: list[Labelled], keys: dict[str, Any]) -> None:
    config: Any = configure("classify", [], keys)
    task = TASKS["classify"]()
    data = Data(Corpus(examples), Corpus(other), "", "")
    assets = task.make_assets(config, data)
    for training, part in ((True, data.train), (False, data.valid)):

        def make(batches: Any, index: int, epoch: int, training: bool = training) -> Batch:
            labelled = [one.example for one in plain.rows_of(batches, index)]
            return plain.classify_batch(config, assets, labelled, training=training)

        compare(task.batches(config, assets, part, training=training), make)


def frames(width: int) -> list[NDArray[np.float32]]:
    draw = np.random.default_rng(0)
    return [draw.standard_normal((steps, width), dtype=np.float32) for steps in (3, 1, 8, 8, 2, 5, 20, 1, 4)]


@pytest.mark.parametrize("kind", ["tags", "spans", "features"])
def test_sentences_to_tag(kind: str) -> None:
    draw = random.Random(0)

    def sentence(text: str) -> Sentence:
        words = tuple(text.split())
        chosen = draw.choices(["O", "B-X", "I-X", "B-Y"] if kind == "spans" else ["N", "V"], k=len(words))
        features = tuple(tuple(draw.choices("pq", k=len(words))) for _ in range(2 if kind == "features" else 0))
        return Sentence(words, tuple(chosen), features)

    examples = [sentence(text) for text in texts() if text]
    other = [sentence(text) for text in UNSEEN if text]
    other += [replace(other[0], tags=None), replace(other[1], tags=("?",) * len(other[1]))]
    if kind == "features":
        other.append(replace(other[0], features=(("unknown",), ("p",))))
    keys: dict[str, Any] = {"train.batch_size": 7}
    if kind == "features":
        keys |= {"data.feature_columns": ["3", "4"], "data.train": "words.txt"}  # a name: nothing is read
    tagged(examples, other, keys)


def test_frames_to_tag() -> None:
    examples = [TaggedFrames(one, tuple("ab"[i % 2] for i in range(len(one)))) for one in frames(3)]
    tagged(examples, [replace(examples[0], tags=None), *examples[:4]], {"train.batch_size": 4})


def tagged(examples: list[Any], other: list[Any], keys: dict[str, Any]) -> None:
    config: Any = configure("tag", [], keys)
    task = TASKS["tag"]()
    assets = task.make_assets(config, Data(examples, [one for one in other if one.tags], "", ""))
    for training, part in ((True, examples), (False, other)):

        def make(batches: Any, index: int, epoch: int) -> Batch:
            return plain.tag_batch(assets, plain.rows_of(batches, index))

        compare(task.batches(config, assets, part, training=training), make)
    assert_same(assets.collate(other), plain.tag_batch(assets, other))


@pytest.mark.parametrize("level", ["word", "char", "bpe"])
@pytest.mark.parametrize("consistency", [0.0, 1.0])
def test_pairs_to_translate(tmp_path: Path, level: str, consistency: float) -> None:
    file, other = tmp_path / "train.tsv", tmp_path / "valid.tsv"
    given = [text for text in texts() if text]
    file.write_text("".join(f"{a}\t{b}\n" for a, b in zip(given, given[::-1], strict=True)))
    other.write_text("".join(f"{a}\t{a}\n" for a in UNSEEN if a))
    keys = {"data.level": level, "train.batch_tokens": 300, "train.consistency": consistency}
    config: Any = configure("translate", [], {**keys, "data.train": str(file), "data.valid": str(other)})
    task = TASKS["translate"]()
    data = task.read(config)
    assets = task.make_assets(config, data)
    for training, part in ((True, data.train), (False, data.valid)):

        def make(batches: Any, index: int, epoch: int, training: bool = training) -> Batch:
            return plain.translate_batch(config, assets, plain.rows_of(batches, index), training=training)

        compare(task.batches(config, assets, part, training=training), make)


@pytest.mark.parametrize("consistency", [0.0, 1.0])
def test_pictures_to_caption(consistency: float) -> None:
    config: Any = configure("caption", [], {"train.batch_size": 13, "train.consistency": consistency})
    task = TASKS["caption"]()
    data = task.read(config)
    data = replace(data, train=Corpus(data.train[:60]), valid=Corpus(data.valid[:20]))
    assets = task.make_assets(config, data)
    for training, part in ((True, data.train), (False, data.valid)):

        def make(batches: Any, index: int, epoch: int, training: bool = training) -> Batch:
            return plain.caption_batch(config, assets, plain.rows_of(batches, index), training=training)

        compare(task.batches(config, assets, part, training=training), make)


@pytest.mark.parametrize("changes", [{}, {"train.augment": False}, {"train.consistency": 0.5}])
def test_lines_to_recognize(changes: dict[str, Any]) -> None:
    config: Any = configure("recognize", [], {"train.batch_size": 7, **changes})
    task = TASKS["recognize"]()
    data = task.read(config)
    data = replace(data, train=Corpus(data.train[:40]), valid=Corpus(data.valid[:10]))
    assets = task.make_assets(config, data)
    for training, part in ((True, data.train), (False, data.valid)):

        def make(batches: Any, index: int, epoch: int) -> Batch:
            numbers = [batches.numbers[row] for row in batches.rows(index)]
            return plain.recognize_batch(batches, numbers, epoch)

        compare(task.batches(config, assets, part, training=training), make)


@pytest.mark.parametrize("naive", [False, True])
@pytest.mark.parametrize("seed", [None, 3])
def test_windows_to_forecast(naive: bool, seed: int | None) -> None:
    draw = np.random.default_rng(1)
    sequences = []
    for steps in (30, 1, 7, 12, 0, 64, 5):
        inputs, targets = draw.random((steps, 3), dtype=np.float32), draw.random((steps, 2, 1), dtype=np.float32)
        targets[steps // 2 :: 3] = np.nan
        sequences.append(FrameSequence(inputs, targets, targets + 1 if naive else None))
    windows = RaggedWindows(sequences, rows=4, window=6, seed=seed, least=8)

    def make(batches: Any, index: int, epoch: int) -> Batch:
        return plain.forecast_batch(windows, plain.plan_of(windows, epoch), index)

    compare(windows, make)
