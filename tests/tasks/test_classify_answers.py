"""Calibrated probabilities, abstention, explanations and focal loss of a classifier."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import unrolled
from tests.tasks.test_classify import SMALL, sentences, write
from unrolled import Model, UserError
from unrolled.data.batching.ngrams import NgramCounts
from unrolled.tasks.classify.calibration import Calibration
from unrolled.tasks.classify.loss import focal, losses_of
from unrolled.tasks.classify.predict import scores_of, unlabelled
from unrolled.text import split_words

TEXT = "one fine two, Fine"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    place = tmp_path_factory.mktemp("noisy")
    rows = sentences(200)
    rows = [(("good", "bad")[i % 2] if i % 9 == 0 else label, text) for i, (label, text) in enumerate(rows)]
    write(place / "train.tsv", rows)
    keys = {**SMALL, "model.ngrams": 0, "train.max_steps": 20, "train.eval_every": 10}
    return unrolled.train("classify", train=place / "train.tsv", out=place / "run", set=keys, quiet=True)


def test_probabilities_are_those_at_the_stored_temperature(model: Model, tmp_path: Path) -> None:
    calibration = model.assets.calibration
    assert isinstance(calibration, Calibration)
    assert calibration.temperature != 1
    scores = scores_of(model, unlabelled(model, [TEXT]))[0]
    expected = torch.from_numpy(scores / np.float32(calibration.temperature)).softmax(0).tolist()
    assert [*model.predict(TEXT).probabilities.values()] == pytest.approx(expected, abs=1e-6)
    model.save(tmp_path / "m.safetensors")
    assert unrolled.load(tmp_path / "m.safetensors").assets.calibration == calibration
    assert {"ece", "ece_uncalibrated"} <= model.scores.keys()


def test_calibrate_false_leaves_the_scores(tmp_path: Path) -> None:
    path = write(tmp_path / "train.tsv", sentences(60))
    keys = {"model.kind": "linear", "train.calibrate": False}
    model = unrolled.train("classify", train=path, out=tmp_path / "run", set=keys, quiet=True)
    assert model.assets.calibration is None
    assert "ece_uncalibrated" not in model.scores


def test_below_a_probability_there_is_no_answer(model: Model, tmp_path: Path) -> None:
    texts = [text for _, text in sentences(40, seed=3)]
    sure = {text: max(model.predict(text).probabilities.values()) for text in texts}
    least = sorted(sure.values())[20]
    answers = model.predict(texts, min_probability=least)
    for text, answer in zip(texts, answers, strict=True):
        assert answer.abstains == (np.float32(sure[text]) < np.float32(least))
        assert (answer.label == "?") == answer.abstains
        assert (answer.labels == ()) == answer.abstains
    table = write(tmp_path / "test.tsv", sentences(40, seed=3))
    scores = model.evaluate(table, min_probability=least)
    assert scores["coverage"] == pytest.approx(np.mean([not answer.abstains for answer in answers]))
    right = [answer.label == label for answer, (label, _) in zip(answers, sentences(40, seed=3), strict=True)]
    answered = [not answer.abstains for answer in answers]
    assert scores["accuracy_answered"] == pytest.approx(np.mean([r for r, a in zip(right, answered, strict=True) if a]))
    assert model.evaluate(table, min_probability=1.0)["coverage"] < 1


@pytest.mark.parametrize("least", [-0.1, 1.5, "0.8", True])
def test_a_probability_is_from_0_to_1(model: Model, least: Any) -> None:
    with pytest.raises(UserError, match=r"min_probability=.* is not a probability\. Give a number from 0 to 1"):
        model.predict("fine", min_probability=least)


def test_the_shares_of_words_add_up(model: Model) -> None:
    """The wide path is linear: shares and bias are its score, and each word stands where it says."""
    answer = model.predict(TEXT, explain=True)
    why = answer.explanation
    assert [TEXT[word.start : word.end] for word in why.words] == [word.text for word in why.words] == split_words(TEXT)
    wide: Any = model.network.wide
    counts = NgramCounts([split_words(TEXT)], model.assets.wide.kinds).gather(np.array([0]))
    rows = wide.places[torch.from_numpy(counts["wide_ngrams"])].long()
    scores = torch.from_numpy(counts["wide_weights"]) @ wide.weight[rows] + wide.bias
    margin = float(scores[model.assets.labels.index(answer.label)] - scores.mean())
    assert sum(word.wide for word in why.words) + why.bias == pytest.approx(margin, abs=1e-5)
    assert why.wide_score == pytest.approx(margin, abs=1e-5)
    whole = scores_of(model, unlabelled(model, [TEXT]))[0]
    total = float(whole[model.assets.labels.index(answer.label)] - whole.mean())
    assert why.wide_score + why.network_score == pytest.approx(total, abs=1e-5)
    assert why.ngrams[0].text in ("fine", "^fine", "^fine$", "fine$")


def test_the_network_is_explained_by_leaving_words_out(model: Model) -> None:
    why = model.predict(TEXT, explain=True).explanation
    without = model.predict(TEXT.replace("two", "", 1), explain=True).explanation
    assert without.label == why.label
    word = next(word for word in why.words if word.text == "two")
    assert word.network == pytest.approx(why.network_score - without.network_score, abs=1e-5)


def test_an_empty_text_is_explained_by_the_bias(model: Model) -> None:
    why = model.predict("", explain=True).explanation
    assert why.words == ()
    assert why.wide_score == why.bias


def test_numbers_are_explained(tmp_path: Path) -> None:
    rows = [(str(len(text.split())), text) for _, text in sentences(100)]
    path = write(tmp_path / "train.tsv", rows)
    keys = {"model.kind": "linear", "data.kind": "number"}
    model = unrolled.train("classify", train=path, out=tmp_path / "run", set=keys, quiet=True)
    answer = model.predict("one two", explain=True)
    assert model.assets.scale[0] + answer.explanation.wide_score == pytest.approx(answer.value, abs=1e-4)


def test_focal_losses_are_those_of_the_paper() -> None:
    """FL = −(1 − p_t)^γ · ln p_t, of classes and of labels."""
    generator = torch.Generator().manual_seed(0)
    scores = 3 * torch.randn(20, 4, generator=generator, dtype=torch.float64)
    classes = torch.randint(0, 4, (20,), generator=generator)
    p = scores.softmax(1).gather(1, classes[:, None])[:, 0]
    for gamma in (0.5, 2.0):
        assert torch.allclose(focal(losses_of(scores, classes), gamma), -((1 - p) ** gamma) * p.log(), atol=1e-9)
        labels = (torch.rand(20, 4, generator=generator) < 0.5).double()
        one = torch.where(labels > 0, scores.sigmoid(), 1 - scores.sigmoid())
        assert torch.allclose(focal(losses_of(scores, labels), gamma), -((1 - one) ** gamma) * one.log(), atol=1e-9)


def test_focal_loss_has_gradients_at_sure_answers() -> None:
    scores = torch.tensor([[200.0, 0.0], [0.0, 200.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(focal(losses_of(scores, torch.tensor([0, 0])), 0.5).sum(), [scores])
    assert bool(gradient.isfinite().all())


def test_weights_of_labels(tmp_path: Path) -> None:
    rows = [(("often", "seldom")[i % 5 == 4], f"a text about {i % 3}") for i in range(200)]
    path = write(tmp_path / "train.tsv", rows)

    def seldom(weights: str) -> float:
        keys = {"model.kind": "linear", "train.class_weights": weights}
        model = unrolled.train("classify", train=path, out=tmp_path / weights.replace("=", ""), set=keys, quiet=True)
        chance: float = model.predict("a text about 1").probabilities["seldom"]
        return chance

    assert seldom("seldom=4") == pytest.approx(0.5, abs=0.1)
    assert seldom("balanced") == pytest.approx(0.5, abs=0.1)
    assert json.loads((tmp_path / "balanced" / "metrics.jsonl").read_text().splitlines()[0])["step"] == 0
