"""n-gram models in plain Python: dictionaries. The truth, and what runs where the C++ core was not built."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"
IMPOSSIBLE = -99.0  # log10 of what has no probability
UNKNOWN_MISSING = -100.0  # log10 of an unknown word where the model has no <unk>, as KenLM's

Words = tuple[str, ...]
_WORD = re.compile(r"[^ \t\n\r\v\f]+")


def words_of(text: str) -> list[str]:
    """The words of a text: what stands between ASCII blanks. Other blanks, such as U+00A0, are letters, as for KenLM.

    >>> words_of(" to\tbe\u00a0or ")
    ['to', 'be\\xa0or']
    """
    return _WORD.findall(text)


class Entry(NamedTuple):
    """One n-gram of a model, in log10."""

    words: Words
    prob: float
    backoff: float


class TextScores(NamedTuple):
    """The words of a text, sentence ends among them, one after another; blank sentences are left out."""

    log10: NDArray[np.float64]
    known: NDArray[np.bool_]
    ends: NDArray[np.bool_]  # whether it is the end of a sentence


class PlainNGram:
    """An n-gram model with back-off, as an ARPA file holds it, in log10.

    log p(w | c) = prob(c w) where that n-gram is stored, else backoff(c) + log p(w | c without its first word).

    A state is the longest context, of at most order − 1 words, that can still matter: one that something continues,
    or that has a back-off.
    """

    def __init__(self, order: int) -> None:
        self.order = order
        self.tables: list[dict[Words, tuple[float, float]]] = [{} for _ in range(order)]
        self._contexts: set[Words] = {()}

    def add(self, words: Sequence[str], prob: float, backoff: float) -> bool:
        """Stores an n-gram; False where it is there already."""
        ngram = tuple(words)
        table = self.tables[len(ngram) - 1]
        if ngram in table:
            return False
        table[ngram] = (prob, backoff)
        # some tools leave out what leads to an n-gram: every beginning of one is a context
        self._contexts.update(ngram[:length] for length in range(1, len(ngram)))
        if backoff != 0 and len(ngram) < self.order:
            self._contexts.add(ngram)
        return True

    def find(self, word: str) -> str:
        """The word as the model knows it: itself, or <unk>."""
        return word if (word,) in self.tables[0] else UNKNOWN

    def start(self) -> Words:
        """The state at the beginning of a sentence."""
        return self._shortened((BEGIN,))

    def score(self, state: Words, word: str) -> tuple[float, int, Words]:
        """log10 p(word | state), the length of the n-gram that was found, and the next state."""
        ngram = (*state, self.find(word))
        skipped = 0.0
        for first in range(len(ngram)):
            stored = self.tables[len(ngram) - first - 1].get(ngram[first:])
            if stored is not None:
                return skipped + stored[0], len(ngram) - first, self._shortened(ngram)
            skipped += self._backoff(ngram[first:-1])
        return skipped + UNKNOWN_MISSING, 1, ()

    def score_each(self, state: Words, words: Sequence[str]) -> list[float]:
        """The score of each word after the same state."""
        return [self.score(state, word)[0] for word in words]

    def score_text(self, lines: bytes) -> TextScores:
        """The scores of whole lines, a sentence each."""
        scores, known, ends = [], [], []
        for line in lines.decode().split("\n"):
            state = self.start()
            words = words_of(line)
            for word in [*words, END] if words else []:
                score, _, state = self.score(state, word)
                scores.append(score)
                known.append(self.find(word) != UNKNOWN)
                ends.append(False)
            if words:
                ends[-1] = True
        return TextScores(np.array(scores, np.float64), np.array(known, np.bool_), np.array(ends, np.bool_))

    def ngrams(self, order: int) -> Iterator[Entry]:
        """The n-grams of one order, as they were added."""
        for words, (prob, backoff) in self.tables[order - 1].items():
            yield Entry(words, prob, backoff)

    def count(self, order: int) -> int:
        return len(self.tables[order - 1])

    def _backoff(self, context: Words) -> float:
        stored = self.tables[len(context) - 1].get(context) if context else None
        return stored[1] if stored is not None else 0.0

    def _shortened(self, words: Words) -> Words:
        longest = words[-(self.order - 1) :] if self.order > 1 else ()
        return next(longest[i:] for i in range(len(longest) + 1) if longest[i:] in self._contexts)
