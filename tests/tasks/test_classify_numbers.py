"""data.kind=number: regression on texts and frames."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

import unrolled
from tests.fitting import fitting
from tests.tasks.test_classify import SMALL
from unrolled import Model, UserError, api
from unrolled.errors import Note
from unrolled.jobs import TrainingJob
from unrolled.tasks import Request
from unrolled.tasks.classify.regression import PredictedNumber, number_scores

NUMBERS: dict[str, Any] = {**SMALL, "data.kind": "number", "train.max_steps": 150, "train.eval_every": 50}
WORDS = {"poor": -2.0, "dull": -1.0, "plain": 0.0, "good": 1.5, "great": 3.0}


def reviews(number: int, seed: int = 0) -> list[tuple[str, str]]:
    """The number is 100 plus ten times what a word is worth."""
    draw = random.Random(seed)
    rows = []
    for index in range(number):
        word = draw.choice(list(WORDS))
        rows.append((f"{100 + 10 * WORDS[word]:.2f}", f"film {index} was {word} to {draw.choice('abc')}"))
    return rows


def write(path: Path, rows: list[tuple[str, str]]) -> Path:
    path.write_text("score,text\n" + "".join(f"{label},{text}\n" for label, text in rows))
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("numbers")
    path = write(folder / "train.csv", reviews(150))
    keys = {**NUMBERS, "data.label_column": "score"}
    return unrolled.train("classify", train=path, out=folder / "run", set=keys, quiet=True)


def test_it_learns_numbers(model: Model, tmp_path: Path) -> None:
    scores = model.evaluate(write(tmp_path / "test.csv", reviews(60, seed=1)))
    assert scores["rmse"] < 5 < 10 < scores["rmse_of_training_mean"]
    assert scores["r2"] > 0.9
    assert scores["examples"] == 60
    assert "rmse" in model.runner.report(scores)
    answer = model.predict("film 7 was great to a")
    assert isinstance(answer, PredictedNumber)
    assert 120 < float(answer) < 140
    together = model.predict(["film 7 was great to a", "film 8 was poor to b"])
    assert together[0].value == pytest.approx(answer.value, abs=1e-4)
    record = json.loads(next(model.runner.run(Request(texts=["a great film"], format="jsonl"))))
    assert list(record) == ["input", "value"]
    assert next(model.runner.run(Request(texts=["a great film"]))) == f"{record['value']:.6g}\n"


def test_a_saved_model_answers_the_same(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "m.safetensors")
    loaded = unrolled.load(tmp_path / "m.safetensors")
    assert loaded.predict("a good film") == model.predict("a good film")
    assert loaded.trace("a good film").parts
    more = write(tmp_path / "more.csv", [(f"{float(x) * 2:g}", text) for x, text in reviews(40, seed=3)])
    config = api.configure("classify", [], {**NUMBERS, "data.label_column": "score", "data.train": str(more)})
    job = TrainingJob(config, init=tmp_path / "m.safetensors")
    assert job.assets.scale == model.assets.scale  # the same output means the same number
    assert job.model.predict("a good film").value == pytest.approx(model.predict("a good film").value, rel=1e-3)


def test_scores_are_scikit_learns() -> None:
    draw = np.random.default_rng(0)
    truth, answers = draw.normal(size=50), draw.normal(size=50)
    scores = number_scores(truth, answers)
    assert scores["rmse"] == pytest.approx(root_mean_squared_error(truth, answers))
    assert scores["mae"] == pytest.approx(mean_absolute_error(truth, answers))
    assert scores["r2"] == pytest.approx(r2_score(truth, answers))


def test_frames_have_numbers_too(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    levels = draw.uniform(-3, 3, size=60)
    frames = (draw.normal(size=(60, 7, 2)) * 0.1 + levels[:, None, None]).astype("float32")
    np.savez(tmp_path / "f.npz", frames=frames, labels=levels)
    keys = fitting("classify", NUMBERS, inputs="frames")
    model = unrolled.train("classify", train=tmp_path / "f.npz", out=tmp_path / "run", set=keys, quiet=True)
    assert model.predict(np.full((7, 2), 2.0)).value == pytest.approx(2, abs=0.7)


@pytest.mark.parametrize(
    ("keys", "rows", "message"),
    [
        ({}, [("1", "a"), ("many", "b"), ("3", "c")], r"t\.tsv:2: 'many' is not a number\."),
        ({}, [("1", "a"), ("nan", "b"), ("3", "c")], r"t\.tsv:2: 'nan' is not a number\."),
        ({}, [("1", "a"), ("1.0", "b"), ("1", "c")], "All training examples have the number 1"),
        (
            {"data.multi_label": True},
            [("1", "a")],
            r"data\.multi_label=true does nothing here: it belongs to data\.kind=label, and data\.kind is number",
        ),
        (
            {"train.label_smoothing": 0.1},
            [("1", "a")],
            r"train\.label_smoothing=0\.1 does nothing here: it belongs to data\.kind=label",
        ),
    ],
)
def test_labels_that_are_not_numbers_are_errors(
    keys: dict[str, Any], rows: list[tuple[str, str]], message: str, tmp_path: Path
) -> None:
    (tmp_path / "t.tsv").write_text("".join(f"{label}\t{text}\n" for label, text in rows))
    with pytest.raises(UserError, match=message):
        api.train("classify", train=tmp_path / "t.tsv", valid=tmp_path / "t.tsv", set={**NUMBERS, **keys}, quiet=True)


def test_labels_that_are_numbers_point_to_it(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text("".join(f"{i / 7:.3f}\tfilm {i}\n" for i in range(40)))
    with pytest.warns(Note, match=r"The labels are numbers .*: 40 classes, .* use data\.kind=number"):
        TrainingJob(api.configure("classify", [], {"data.train": str(path)}))
