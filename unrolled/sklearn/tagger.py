"""`Tagger`: a tag for each word of a sentence, or for each frame of a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_consistent_length

from unrolled.errors import UserError
from unrolled.sklearn.estimator import Estimator, names_for, sequences_of


class Tagger(Estimator):
    """A tag for each word of a sentence, or for each frame of a sequence; the task `tag`.

    X is a list of lists of words, or a list of arrays (T, D); y has a list of tags for each. `score` is the F1 of spans
    where the tags mark spans (B-PER, I-PER, O), else the share of right tags.

    >>> from unrolled.sklearn import Tagger
    >>> X, y = [["a", "dog"], ["the", "dog"], ["a", "cat"], ["the", "cat"]], [["DET", "NOUN"]] * 4
    >>> Tagger(max_steps=80, hidden_size=8).fit(X, y).predict([["the", "dog"]])
    [['DET', 'NOUN']]
    """

    task: ClassVar[str] = "tag"

    def fit(self, X: Any, y: Any) -> Self:
        """Train a new model; a tenth of the sequences is held out to choose the best."""
        inputs = sequences_of(self, X, fitting=True)
        tags = [_tags(one, row) for row, one in enumerate(y)]
        check_consistent_length(inputs, tags)
        for row, (one, given) in enumerate(zip(inputs, tags, strict=True)):
            if len(one) != len(given):
                raise UserError(f"Row {row} has {len(one)} steps and {len(given)} tags.", "Expected one for each.")
        self.classes_ = np.unique([tag for given in tags for tag in given])
        self._names = names_for(self.classes_)
        known = dict(zip(self.classes_.tolist(), self._names, strict=True))
        return self._trained((_plain(inputs), [[known[tag] for tag in given] for given in tags]))

    def predict(self, X: Any) -> list[list[Any]]:
        """The tags of each sequence."""
        model = self._fitted()
        classes = dict(zip(self._names, self.classes_.tolist(), strict=True))
        with self._notes():
            answers = model.predict(_plain(sequences_of(self, X, fitting=False)))
        return [[classes[tag] for tag in _named(answer)] for answer in answers]

    def predict_proba(self, X: Any) -> list[NDArray[np.float64]]:
        """The probability of every tag at each step: for each sequence (T, tags), in the order of `classes_`."""
        from unrolled.tasks.tag.predict import probabilities_of

        model = self._fitted()
        places = {name: place for place, name in enumerate(self._names)}
        names, found = probabilities_of(model, _plain(sequences_of(self, X, fitting=False)))
        tables = []
        for chances in found:
            table = np.zeros((len(chances), len(places)))
            for column, name in enumerate(names):
                table[:, places[name]] += chances[:, column]
            tables.append(table / table.sum(axis=1, keepdims=True))
        return tables

    def score(self, X: Any, y: Any) -> float:
        """The F1 of spans where the tags mark spans, else the share of right tags."""
        model = self._fitted()
        known = dict(zip(self.classes_.tolist(), self._names, strict=True))
        tags = [[known.get(tag, str(tag)) for tag in _tags(one, row)] for row, one in enumerate(y)]
        with self._notes():
            scores = model.evaluate((_plain(sequences_of(self, X, fitting=False)), tags))
        return float(scores.get("span_f1", scores["accuracy"]))


def _tags(given: Any, row: int) -> list[Any]:
    if isinstance(given, str) or not hasattr(given, "__len__"):
        raise UserError(f"y, row {row} is {type(given).__name__}.", "Expected a list with a tag for each step.")
    return list(given.tolist()) if hasattr(given, "tolist") else list(given)


def _plain(inputs: Sequence[Any]) -> list[Any]:
    return [list(one) if isinstance(one, tuple) else one for one in inputs]


def _named(answer: Any) -> list[str]:
    """The tags of an answer: of words (word, tag), or of frames."""
    return list(answer.tags) if hasattr(answer, "tags") else [tag for _, tag in answer]
