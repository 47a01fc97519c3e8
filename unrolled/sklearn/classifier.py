"""`SequenceClassifier`: a label for a text or a sequence of frames."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d

from unrolled.errors import UserError
from unrolled.sklearn.estimator import Estimator, names_for, sequences_of


class SequenceClassifier(ClassifierMixin, Estimator):  # type: ignore[misc]
    """A class for each text, or for each sequence of frames; the task `classify`.

    X is a list of texts, numbers (N, T) or (N, T, D), or a list of arrays (T, D) of any lengths. y has a class for
    each: texts, numbers or booleans, which `predict` gives back with their type.

    >>> from unrolled.sklearn import SequenceClassifier
    >>> X, y = ["fine", "very fine", "poor", "so poor", "fine day", "poor day"], [1, 1, 0, 0, 1, 0]
    >>> model = SequenceClassifier(max_steps=30, hidden_size=8).fit(X, y)
    >>> model.predict(["a fine film"]).tolist(), model.predict_proba(X).shape
    ([1], (6, 2))
    """

    task: ClassVar[str] = "classify"

    def fit(self, X: Any, y: Any) -> Self:
        """Train a new model; a tenth of the examples is held out to choose the best."""
        if y is None:
            raise ValueError("SequenceClassifier requires y to be passed, but the target y is None.")
        inputs = sequences_of(self, X, fitting=True)
        labels = column_or_1d(y, warn=True)
        check_consistent_length(inputs, labels)
        if labels.dtype.kind == "O" and any(one is None or one != one for one in labels.tolist()):
            row = next(i for i, one in enumerate(labels.tolist()) if one is None or one != one)
            raise UserError(f"y, row {row} is missing.", "Give a class for every input, or leave the row out.")
        check_classification_targets(labels)
        self.classes_, places = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise UserError(f"y has one class: {self.classes_.tolist()[0]!r}.", "Give examples of two classes or more.")
        self._names = names_for(self.classes_)
        return self._trained((inputs, [self._names[place] for place in places]))

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely class of each sequence, (N,)."""
        places = self.predict_proba(X).argmax(axis=1)
        found: NDArray[Any] = self.classes_[places]
        return found

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of every class, (N, classes), in the order of `classes_`."""
        model = self._fitted()
        inputs = sequences_of(self, X, fitting=False)
        with self._notes():
            answers = model.predict(inputs)
        table = np.array([[one.probabilities.get(name, 0.0) for name in self._names] for one in answers], dtype=float)
        found: NDArray[np.float64] = table / table.sum(axis=1, keepdims=True)
        return found
