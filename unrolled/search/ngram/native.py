"""n-gram models in the C++ core (native/ngram.h), seen as plain.py's are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from unrolled.search.ngram.plain import Entry

NATIVE: Any
try:
    from unrolled.kernels import _native as NATIVE
except ImportError:
    NATIVE = None


class NativeNGram:
    """A C++ model behind PlainNGram's methods. Its states are whole numbers."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.order: int = model.order

    def find(self, word: str) -> int:
        number: int = self.model.find(word)
        return number

    def start(self) -> int:
        state: int = self.model.start()
        return state

    def score(self, state: int, word: str) -> tuple[float, int, int]:
        ((score, length),), next_state = self.model.score_words(state, [self.model.find(word)])
        return score, length, next_state

    def ngrams(self, order: int) -> Iterator[Entry]:
        for words, prob, backoff in self.model.ngrams(order):
            yield Entry(tuple(self.model.word(word) for word in words), prob, backoff)

    def count(self, order: int) -> int:
        count: int = self.model.count(order)
        return count
