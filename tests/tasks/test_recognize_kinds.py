"""Kinds of inputs and labels of `recognize`: frames, images, phonemes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import unrolled
from tests.tasks.recognition import (
    SMALL,
    frames,
    words,
)
from tests.tasks.test_recognize import WRITERS
from tests.tolerances import assert_close
from unrolled import api
from unrolled.data.signals.line_images import prepared_line
from unrolled.jobs import TrainingJob
from unrolled.tasks.recognize.batches import feature_store, features_batch
from unrolled.tasks.recognize.config import RecognizeConfig
from unrolled.tasks.recognize.task import Recognize


@pytest.mark.parametrize("kind", ["recurrent", "transformer"])
def test_it_overfits_eight_examples(kind: str, tmp_path: Path) -> None:
    """Transcripts drawn at random: nothing but learning by heart gets them right."""
    random = np.random.default_rng(0)
    texts = ["".join(random.choice(list("abcd"), 5)) for _ in range(8)]
    table = [random.standard_normal((20, 6)).astype(np.float32) for _ in texts]
    file = tmp_path / "eight.npz"
    np.savez(file, frames=np.concatenate(table), lengths=[20] * 8, texts=np.array(texts))
    settings = {**SMALL, "model.kind": kind, "train.lr": 0.01 if kind == "recurrent" else 0.003, "train.max_steps": 200}
    model = unrolled.train("recognize", train=file, valid=file, out=tmp_path / "run", set=settings, quiet=True)
    assert model.evaluate(file)["exact_match"] == 1.0


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("audio", {}),
        ("audio", {"model.bidirectional": False}),
        ("line", {}),
        ("line", {"model.bidirectional": False, "model.channels": [4, 4], "model.strides": [3, 2]}),
        ("frames", {}),
        ("frames", {"model.kind": "transformer"}),
        ("audio", {"model.kind": "transformer", "model.bidirectional": False}),
    ],
)
def test_batched_equals_single(kind: str, changes: dict[str, Any], tmp_path: Path) -> None:
    """Padding changes no number: neither in the convolutions nor behind them."""
    file = WRITERS[kind](tmp_path, ["abc", "a b c a b c", "c"])
    job = TrainingJob(
        api.configure("recognize", [], {**SMALL, **changes, "data.train": str(file), "data.valid": str(file)})
    )
    model = job.model
    config: Any = job.config
    store = feature_store(config, job.assets, job.data.train)
    features = [job.assets.reader.features(store[i]) for i in range(3)]
    model.network.eval()
    with torch.no_grad():
        together, lengths = model.network(features_batch(features))
        for row, one in enumerate(features):
            alone, (length,) = model.network(features_batch([one]))
            assert int(lengths[row]) == int(length) == alone.shape[1]
            assert_close(together[row, : int(length)], alone[0])


def test_the_loss_is_torchs(tmp_path: Path) -> None:
    file = WRITERS["frames"](tmp_path, words(6))
    job = TrainingJob(api.configure("recognize", [], {**SMALL, "data.train": str(file), "data.valid": str(file)}))
    batches = job.task.batches(job.config, job.assets, job.data.valid, training=False)
    batch = batches[0]
    loss = job.task.loss(job.model.network, batch, None)
    log_probs, lengths = job.model.network(batch)
    expected = torch.nn.functional.ctc_loss(
        log_probs.transpose(0, 1), batch.targets, lengths, batch.more["target_lengths"], reduction="sum"
    )
    assert_close(loss.sum, expected)
    assert int(loss.count) == sum(len(job.assets.labels.ids(e.text)) for e in job.data.valid)


def test_small_images_in_sequence_are_read(tmp_path: Path) -> None:
    """Lip-reading's setup: each step is an image."""
    texts = words(60)
    table = [np.kron(frames(text, i).reshape(-1, 2, 2), np.ones((1, 4, 4))) for i, text in enumerate(texts)]
    file = tmp_path / "film.npz"
    np.savez(file, frames=np.concatenate(table), lengths=[len(one) for one in table], texts=np.array(texts))
    settings = {**SMALL, "train.lr": 0.005, "model.front": [16]}
    model = unrolled.train("recognize", train=file, valid=file, out=tmp_path / "run", set=settings, quiet=True)
    assert model.evaluate(file)["cer"] < 0.05
    assert model.assets.reader.shape == (8, 8)


def test_phonemes_are_symbols(tmp_path: Path) -> None:
    texts = [" ".join({"a": "AH", "b": "B", "c": "SH"}[c] for c in text.replace(" ", "")) for text in words(60)]
    table = [frames(text.replace(" ", ""), i) for i, text in enumerate(words(60))]
    file = tmp_path / "phones.npz"
    np.savez(file, frames=np.concatenate(table), lengths=[len(one) for one in table], texts=np.array(texts))
    settings = {**SMALL, "data.level": "symbols"}
    model = unrolled.train("recognize", train=file, valid=file, out=tmp_path / "run", set=settings, quiet=True)
    assert model.predict(frames("abca")).text == "AH B SH AH"
    lexicon = tmp_path / "words.txt"
    lexicon.write_text("bush B AH SH\nash AH SH\n")
    assert model.predict(frames("bacac"), lexicon=str(lexicon)).text == "bush ash"
    scores = model.evaluate(file)
    assert scores["cer"] == scores["wer"] < 0.05


def test_the_embedded_data_is_said_plainly() -> None:
    data = Recognize().read(RecognizeConfig())
    assert "the scans are real, the lines are not" in data.source
    assert len(data.train) == 1600
    train = {example.input.tobytes() for example in data.train}
    assert not any(example.input.tobytes() in train for example in data.valid)


def test_a_picture_of_dots_is_one_line() -> None:
    dots = np.full((12, 30), 255, dtype=np.uint8)
    dots[np.arange(12), np.arange(12)] = 0
    assert prepared_line(dots, 16).lines == 1
