"""Accuracy, precision, recall and F1 of labels; equal to scikit-learn's with zero_division=0."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class ClassScores:
    """Counts and ratios for each class, (C,) each, and their means."""

    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    f1: NDArray[np.float64]
    support: NDArray[np.int64]  # occurrences as the true label
    accuracy: float  # of whole examples
    micro_f1: float

    @property
    def macro_f1(self) -> float:
        """The mean over classes that occur as truth or as an answer."""
        seen = (self.support > 0) | self._answered
        return float(self.f1[seen].mean()) if seen.any() else 0.0

    _answered: NDArray[np.bool_]


def class_scores(truth: ArrayLike, answers: ArrayLike, classes: int) -> tuple[ClassScores, NDArray[np.int64]]:
    """Scores of one label each, and the confusion matrix (C, C): rows are the truth.

    A truth of −1, a label that training never saw, is in no class: every answer to it is wrong.

    >>> scores, confusion = class_scores([0, 0, 1, -1], [0, 1, 1, 1], 2)
    >>> scores.accuracy, confusion.tolist()
    (0.5, [[1, 1], [0, 1]])
    """
    true, predicted = np.asarray(truth, dtype=np.int64), np.asarray(answers, dtype=np.int64)
    known = true >= 0
    confusion = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(confusion, (true[known], predicted[known]), 1)
    hits = np.diag(confusion)
    answered = np.bincount(predicted, minlength=classes)
    accuracy = float((true == predicted).mean()) if len(true) else 0.0
    return _scores(hits, answered, confusion.sum(axis=1), accuracy), confusion


def label_scores(truth: NDArray[np.bool_], answers: NDArray[np.bool_]) -> ClassScores:
    """Scores of any number of labels each, (N, C) each; an example counts for accuracy if all its labels are right."""
    accuracy = float((truth == answers).all(axis=1).mean()) if len(truth) else 0.0
    return _scores((truth & answers).sum(axis=0), answers.sum(axis=0), truth.sum(axis=0), accuracy)


def _scores(
    hits: NDArray[np.int64], answered: NDArray[np.int64], support: NDArray[np.int64], accuracy: float
) -> ClassScores:
    precision, recall = hits / np.maximum(answered, 1), hits / np.maximum(support, 1)
    f1 = 2 * hits / np.maximum(answered + support, 1)
    micro = 2 * float(hits.sum()) / max(1, int((answered + support).sum()))
    return ClassScores(precision, recall, f1, support, accuracy, micro, answered > 0)
