"""Scores of labels against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unrolled.metrics import class_scores, label_scores

sklearn = pytest.importorskip("sklearn.metrics")

pairs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40)


@settings(deadline=None, max_examples=60)
@given(pairs)
def test_one_label_each(drawn: list[tuple[int, int]]) -> None:
    truth, answers = [t for t, _ in drawn], [a for _, a in drawn]
    scores, confusion = class_scores(truth, answers, 5)
    p, r, f, n = sklearn.precision_recall_fscore_support(truth, answers, labels=range(5), zero_division=0)
    np.testing.assert_allclose(scores.precision, p)
    np.testing.assert_allclose(scores.recall, r)
    np.testing.assert_allclose(scores.f1, f)
    np.testing.assert_array_equal(scores.support, n)
    np.testing.assert_array_equal(confusion, sklearn.confusion_matrix(truth, answers, labels=range(5)))
    assert scores.accuracy == pytest.approx(sklearn.accuracy_score(truth, answers))
    assert scores.macro_f1 == pytest.approx(sklearn.f1_score(truth, answers, average="macro", zero_division=0))
    assert scores.micro_f1 == pytest.approx(sklearn.f1_score(truth, answers, average="micro"))


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 20), st.integers(0, 10_000))
def test_several_labels_each(rows: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    truth, answers = random.random((2, rows, 4)) < 0.4
    scores = label_scores(truth, answers)
    p, r, f, n = sklearn.precision_recall_fscore_support(truth, answers, zero_division=0)
    np.testing.assert_allclose(scores.precision, p)
    np.testing.assert_allclose(scores.recall, r)
    np.testing.assert_allclose(scores.f1, f)
    np.testing.assert_array_equal(scores.support, n)
    assert scores.accuracy == pytest.approx(sklearn.accuracy_score(truth, answers))
    assert scores.micro_f1 == pytest.approx(sklearn.f1_score(truth, answers, average="micro", zero_division=0))


def test_a_label_that_training_never_saw_is_wrong() -> None:
    scores, confusion = class_scores([0, -1], [0, 1], 2)
    assert scores.accuracy == 0.5
    assert confusion.sum() == 1
    assert scores.precision.tolist() == [1.0, 0.0]
