"""DictionaryScorer: outputs that are words of a lexicon, scored by a language model of words."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from unrolled.search.arrays import Array, arrays_of
from unrolled.search.lexicon import At, Lexicon, SentenceParser, WordModel, WordTokens, WordWeights
from unrolled.search.ngram import NGram
from unrolled.search.scorers.scorer import Scorer, State
from unrolled.search.tokens.token_model import Rows


class Readings(NamedTuple):
    """All readings of a hypothesis as words that are still possible."""

    best: float  # of their scores
    scores: dict[At, float]  # the best score of those at each place
    length: int  # tokens


class DictionaryScorer(Scorer):
    """Keeps outputs to words of a lexicon, whose labels are the tokens, and adds the scores of the words.

    A hypothesis may be read as words in several ways: words that sound alike, a word that begins another, words without
    separators. All of them are followed, and the best one counts. So the total that is added to a finished output is

        lm_weight · log p(words) + word_bonus · words + unknown_penalty · unknown words

    of its best words, exactly.

    >>> import torch
    >>> scorer = DictionaryScorer(Lexicon(["ab", "b"], ["a", "b", "</s>"]), tokens=WordTokens(end=2))
    >>> scorer.scores(scorer.advance(scorer.initial(1), torch.tensor([0]))).tolist()
    [[-inf, 0.0, -inf]]
    """

    def __init__(
        self,
        lexicon: Lexicon,
        lm: WordModel | None = None,
        tokens: WordTokens | None = None,
        weights: WordWeights | None = None,
    ) -> None:
        self.parser = SentenceParser(lexicon, lm, tokens, weights)
        self.vocabulary = len(lexicon.labels)

    def initial(self, rows: int) -> State:
        return Rows([Readings(0.0, {self.parser.initial: 0.0}, 0)] * rows)

    def scores(self, state: State) -> Array:
        found = np.full((len(state), self.vocabulary), -np.inf, dtype=np.float32)
        for row, readings in zip(found, state, strict=True):
            for at, score in readings.scores.items():
                tokens, gains = self.parser.gains(at)
                row[tokens] = np.maximum(row[tokens], gains + (score - readings.best))
        return found

    def advance(self, state: State, tokens: Array) -> State:
        return Rows(self._next(readings, token) for readings, token in zip(state, tokens.tolist(), strict=True))

    def _next(self, readings: Readings, token: int) -> Readings:
        scores: dict[At, float] = {}
        for at, score in readings.scores.items():
            for move in self.parser.moves(at, token):
                if score + move.gain > scores.get(move.at, -np.inf):
                    scores[move.at] = score + move.gain
        if not scores:  # a prompt or prefix has words of its own
            at = max(readings.scores, key=lambda one: readings.scores[one])
            scores = {self.parser.lost(at): readings.best}
        return Readings(max(scores.values()), scores, readings.length + 1)

    def bound(self, state: State, totals: Array, longest: Array) -> Array:
        """Words cost nothing or more, apart from bonuses; what look-ahead counted in advance may come back."""
        arrays = arrays_of(totals)
        if not isinstance(self.parser.lm, NGram | None):
            return arrays.full_like(totals, math.inf)  # its scores may be of any kind
        weights, tokens = self.parser.weights, self.parser.tokens
        bonus = max(0.0, weights.word_bonus, weights.word_bonus + (weights.unknown_penalty or 0.0))
        rises = []
        for readings, most in zip(state, longest.tolist(), strict=True):
            earned = max(score - self.parser.look_ahead(at) for at, score in readings.scores.items())
            left = max(0, most - readings.length)
            words = (left + 1) // 2 if tokens.required else left
            rises.append(earned - readings.best + bonus * words)
        return totals + arrays.alike(arrays.moved(np.array(rises)), totals)

    def places(self, state: State) -> Sequence[Hashable]:
        """The place of each hypothesis's best reading in the lexicon."""
        best = (max(one.scores, key=lambda at: one.scores[at]) for one in state)
        return [(at.kind, at.place, at.follows) for at in best]
