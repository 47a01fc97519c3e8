"""n-gram models in the C++ core (native/ngram/ngram.h), seen as plain.py's are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from unrolled.search.ngram.plain import Entry, TextScores


class NativeNGram:
    """A C++ model behind PlainNGram's methods. Its states are whole numbers."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.order: int = model.order
        self._numbers: dict[str, int] = {}  # of words that `score_each` was asked for

    def find(self, word: str) -> int:
        number: int = self.model.find(word)
        return number

    def start(self) -> int:
        state: int = self.model.start()
        return state

    def score(self, state: int, word: str) -> tuple[float, int, int]:
        ((score, length),), next_state = self.model.score_words(state, [self.model.find(word)])
        return score, length, next_state

    def score_each(self, state: int, words: Sequence[str]) -> list[float]:
        """The score of each word after the same state."""
        numbers, score_words = self._numbers, self.model.score_words
        for word in words:
            if word not in numbers:
                numbers[word] = self.model.find(word)
        return [score_words(state, [numbers[word]])[0][0][0] for word in words]

    def score_text(self, lines: bytes) -> TextScores:
        scores, known, ends = self.model.score_text(lines)
        wide = np.frombuffer(scores, np.float32).astype(np.float64)
        return TextScores(wide, np.frombuffer(known, np.bool_), np.frombuffer(ends, np.bool_))

    def ngrams(self, order: int) -> Iterator[Entry]:
        for words, prob, backoff in self.model.ngrams(order):
            yield Entry(tuple(self.model.word(word) for word in words), prob, backoff)

    def count(self, order: int) -> int:
        count: int = self.model.count(order)
        return count
