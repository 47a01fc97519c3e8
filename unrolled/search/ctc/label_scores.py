"""Scorers in a search over frames: the scores of label sequences, kept as the search meets them again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from unrolled.search.arrays import host_arrays
from unrolled.search.scorers.scorer import Scorer, Scorers

Labels = tuple[int, ...]


class LabelScores:
    """Scores that scorers add to label sequences; labels are columns of the posteriors, without blanks."""

    def __init__(self, scorers: Sequence[Scorer], labels: int) -> None:
        self.arrays, self.labels = host_arrays(), labels
        self.scorers = Scorers(scorers, self.arrays)
        self._states: dict[Labels, Any] = {(): self.scorers.initial(1)}
        self._totals: dict[Labels, float] = {(): 0.0}
        self._next: dict[Labels, list[float]] = {}

    start: Labels = ()

    def after(self, labels: Labels, label: int) -> Labels:
        """The sequence with one more label."""
        return (*labels, label)

    def next(self, labels: Labels, label: int) -> float:
        """The score of one more label."""
        if labels not in self._next:
            added, masked = self.scorers.next_scores(self._state(labels), 1, self.labels)
            scores = self.arrays.zeros((1, self.labels), "float32") if added is None else added
            scores = scores if masked is None else self.arrays.masked_fill(scores, masked, -math.inf)
            self._next[labels] = scores[0].tolist()
        return self._next[labels][label]

    def total(self, labels: Labels) -> float:
        """The scores of all labels so far."""
        if labels not in self._totals:
            self._totals[labels] = self.total(labels[:-1]) + self.next(labels[:-1], labels[-1])
        return self._totals[labels]

    def final(self, labels: Labels, score: float) -> float:
        """The score of a whole sequence, from its score so far."""
        return float(self.scorers.final(self._state(labels), self.arrays.moved(np.array([score])))[0])

    def _state(self, labels: Labels) -> Any:
        if labels not in self._states:
            self._states[labels] = self.scorers.advance(self._state(labels[:-1]), self.arrays.tensor([labels[-1]]))
        return self._states[labels]
