"""Estimators of texts, words and series in scikit-learn's own machinery."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import unrolled
from tests.tasks.tag.conftest import chunked
from tests.tasks.test_classify import sentences
from unrolled import UserError
from unrolled.sklearn import Forecaster, SequenceClassifier, Tagger

ONCE = {"train.eval_every": 100}  # one evaluation, at the end
SMALL: dict[str, Any] = {"hidden_size": 8, "lr": 0.02, "max_steps": 30, "batch_size": 8, "settings": ONCE}
SHORT: dict[str, Any] = {**SMALL, "max_steps": 3}


def texts(number: int = 60) -> tuple[list[str], list[str]]:
    rows = sentences(number)
    return [text for _, text in rows], [label for label, _ in rows]


@pytest.fixture(scope="module")
def classifier() -> SequenceClassifier:
    return SequenceClassifier(**SMALL).fit(*texts())


def test_answers_are_those_of_the_model(classifier: SequenceClassifier) -> None:
    X, y = texts(20)
    answers = classifier.model_.predict(X)
    assert classifier.predict(X).tolist() == [one.label for one in answers]
    table = classifier.predict_proba(X)
    assert classifier.classes_.tolist() == ["bad", "good"]
    np.testing.assert_allclose(table, [[one.probabilities[name] for name in ("bad", "good")] for one in answers])
    np.testing.assert_allclose(table.sum(axis=1), 1)
    assert classifier.score(X, y) == accuracy_score(y, classifier.predict(X)) >= 0.9


def test_the_model_is_that_of_train(classifier: SequenceClassifier, tmp_path: Any) -> None:
    keys = {"model.hidden_size": 8, "train.lr": 0.02, "train.max_steps": 30, "train.batch_size": 8, **ONCE}
    model = unrolled.train("classify", train=texts(), out=tmp_path / "run", set=keys, quiet=True)
    assert model.predict(texts()[0]) == classifier.model_.predict(texts()[0])


@pytest.mark.parametrize(
    "labels",
    [[1, 0], [True, False], [2.0, -1.0], ["b", "a"], np.array([7, 3], dtype=np.int8), [" x", "x "]],
    ids=str,
)
def test_classes_keep_their_type(labels: Any) -> None:
    y = np.array([labels[n % 2] for n in range(12)])
    X = [f"{'fine' if n % 2 else 'poor'} {n}" for n in range(12)]
    found = SequenceClassifier(**SHORT).fit(X, y)
    assert found.classes_.tolist() == sorted(np.array(labels).tolist())
    assert found.predict(X).dtype == y.dtype
    assert set(found.predict(X).tolist()) <= set(y.tolist())


def test_copies_answer_alike(classifier: SequenceClassifier) -> None:
    X, _ = texts(10)
    expected = classifier.predict_proba(X)
    for copy in (pickle.loads(pickle.dumps(classifier)), _by_joblib(classifier)):
        assert np.array_equal(copy.predict_proba(X), expected)
        assert copy.get_params() == classifier.get_params()
    state = classifier.__getstate__()
    assert isinstance(state["model_"], bytes)
    unfitted = clone(classifier)
    with pytest.raises(NotFittedError):
        unfitted.predict(X)
    pickle.loads(pickle.dumps(unfitted))


def _by_joblib(one: Any) -> Any:
    file = io.BytesIO()
    joblib.dump(one, file)
    file.seek(0)
    return joblib.load(file)


def test_two_fits_give_one_model_and_another_seed_another() -> None:
    X, y = texts(20)
    first, second = (SequenceClassifier(**SHORT, random_state=seed).fit(X, y).predict_proba(X) for seed in (3, 3))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, SequenceClassifier(**SHORT, random_state=4).fit(X, y).predict_proba(X))


def test_pipelines_searches_and_cross_validation() -> None:
    X, y = texts(24)
    lower = FunctionTransformer(lambda batch: [text.lower() for text in batch])
    pipeline = Pipeline([("lower", lower), ("model", SequenceClassifier(**SHORT))])
    grid = GridSearchCV(
        pipeline, {"model__hidden_size": [4], "model__settings": [ONCE, ONCE | {"model.cell": "gru"}]}, cv=2
    )
    grid.fit([text.upper() for text in X], y)
    assert grid.best_estimator_.named_steps["model"].model_.config.model.hidden_size == 4
    assert len(grid.predict(X)) == len(X)
    assert cross_val_score(SequenceClassifier(**SHORT), np.array(X), y, cv=2).shape == (2,)
    frame = pd.DataFrame({"text": X, "label": y})
    assert SequenceClassifier(**SHORT).fit(frame["text"], frame["label"]).predict(frame["text"]).shape == (24,)


def test_sequences_of_any_length() -> None:
    draw = np.random.default_rng(0)
    y = np.arange(16) % 2
    X = [draw.normal(label, 0.3, (2 + n % 3, 2)) for n, label in enumerate(y)]
    assert SequenceClassifier(**SMALL).fit(X, y).score(X, y) >= 0.9
    assert SequenceClassifier(**SHORT).fit(draw.normal(size=(16, 5, 2)), y).predict_proba(X).shape == (16, 2)


def test_taggers() -> None:
    words = [[word for word, _, _ in sentence] for sentence in chunked()]
    tags = [[tag for _, _, tag in sentence] for sentence in chunked()]
    tagger = Tagger(**{**SMALL, "max_steps": 60}).fit(words, tags)
    assert tagger.predict(words[:2]) == [[tag for _, tag in one] for one in tagger.model_.predict(words[:2])]
    assert tagger.score(words, tags) == tagger.model_.evaluate((words, tags))["span_f1"] > 0.5
    chances = tagger.predict_proba(words)
    assert [one.shape for one in chances] == [(len(one), len(tagger.classes_)) for one in words]
    with_chances = tagger.model_.predict(words, probabilities=True)
    at = {tag: place for place, tag in enumerate(tagger.classes_.tolist())}
    for table, answer in zip(chances, with_chances, strict=True):
        np.testing.assert_allclose(table.sum(axis=1), 1)
        expected = [chance for *_, chance in answer]
        np.testing.assert_allclose([table[i, at[tag]] for i, (_, tag, _) in enumerate(answer)], expected, atol=1e-5)
    assert pickle.loads(pickle.dumps(tagger)).predict(words[:2]) == tagger.predict(words[:2])
    numbers = [[int(tag != "O") for tag in one] for one in tags]
    assert {type(tag) for one in Tagger(**SHORT).fit(words, numbers).predict(words) for tag in one} == {int}


def test_forecasters() -> None:
    wave = np.sin(np.arange(200) / 5)[:, None]
    model = Forecaster(**SMALL, horizon=2).fit(wave)
    assert model.predict(wave).shape == (200, 1)
    assert model.score(wave) == r2_score(wave[2:], model.predict(wave)[:-2]) > 0.9
    following = Forecaster(**SHORT).fit(wave)
    assert np.array_equal(following.forecast(wave, steps=2), following.model_.predict(wave, steps=2))
    one = wave[:, 0]
    aligned = Forecaster(**SMALL).fit(wave, one**2)
    assert aligned.predict(wave).shape == (200,)
    assert Forecaster(**SHORT).fit(wave, np.stack([one, -one], 1)).predict(wave).shape == (200, 2)
    pipeline = Pipeline([("scale", StandardScaler()), ("model", Forecaster(**SHORT))])
    assert cross_val_score(pipeline, wave, one**2, cv=TimeSeriesSplit(2)).shape == (2,)
    assert np.array_equal(pickle.loads(pickle.dumps(aligned)).predict(wave), aligned.predict(wave))


WRONG: dict[str, tuple[Any, Any, Any, str]] = {
    "one class": (SequenceClassifier, ["a", "b"], [1, 1], "y has one class: 1. Give examples of two classes or more."),
    "a missing class": (
        SequenceClassifier,
        ["a", "b", "c"],
        np.array(["x", None, "y"], dtype=object),
        "y, row 1 is missing. Give a class for every input, or leave the row out.",
    ),
    "a missing text": (
        SequenceClassifier,
        ["a", None, "c"],
        [1, 0, 1],
        "X, row 1 is missing, and the first is str. Give inputs of one kind.",
    ),
    "one text": (SequenceClassifier, "a text", [1], "X is one text. Give a list of texts."),
    "unequal": (Tagger, [["a", "b"]], [["X"]], "Row 0 has 2 steps and 1 tags. Expected one for each."),
    "no list": (Tagger, [["a", "b"]], ["XY"], "y, row 0 is str. Expected a list with a tag for each step."),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_data(case: str) -> None:
    kind, X, y, message = WRONG[case]
    with pytest.raises(UserError) as caught:
        kind(**SHORT).fit(X, y)
    assert str(caught.value) == message


def test_scikit_learn_is_imported_by_its_module_alone() -> None:
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import unrolled.data.memory.held, unrolled.tasks.classify.examples\n"
        "assert not {'pandas', 'polars', 'datasets', 'sklearn.base'} & set(sys.modules), sorted(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
