"""Look-ahead: inside a word, the best score of the words that are still possible."""

from __future__ import annotations

import math

import numpy as np

from unrolled.search.lexicon.graph import SpellingPlace
from unrolled.search.lexicon.lexicon import Lexicon
from unrolled.search.lexicon.word_model import UNKNOWN_WORD, WordModel
from unrolled.search.ngram import NGram
from unrolled.search.ngram.plain import UNKNOWN_MISSING


class LookAhead:
    """The best unigram score, times `weight`, of the words that begin as a place does; 0 before a word begins.

    Only an n-gram model has unigram scores: with any other language model, or none, all are 0.
    """

    def __init__(self, lexicon: Lexicon, lm: WordModel | None, weight: float) -> None:
        self._graph = lexicon.graph
        self._known = {self._graph.root: 0.0}
        self._best: np.ndarray[tuple[int], np.dtype[np.float64]] | None = None  # of each spelling
        if isinstance(lm, NGram):
            unigrams = {entry.words[0]: entry.prob * math.log(10) for entry in lm.ngrams(1)}
            missing = unigrams.get(UNKNOWN_WORD, UNKNOWN_MISSING * math.log(10))
            scores = [unigrams.get(word, missing) * weight for word in lexicon.words]
            ranks = range(lexicon.distinct)
            self._best = np.array([max(scores[word] for word in lexicon.words_at(rank)) for rank in ranks])

    def __call__(self, place: SpellingPlace) -> float:
        if self._best is None:
            return 0.0
        if place not in self._known:
            behind = self._graph.ranks(place)
            self._known[place] = float(self._best[behind.start : behind.stop].max())
        return self._known[place]
