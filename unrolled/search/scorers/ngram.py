"""NGramScorer: an n-gram language model over tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unrolled.search.arrays import Array
from unrolled.search.ngram import NGram
from unrolled.search.scorers.scorer import Scorer, State
from unrolled.search.tokens.token_model import Rows


class NGramScorer(Scorer):
    """Adds weight · log p(token | tokens before) of a model whose words are the tokens' names.

    `end` is the token that ends an output: it counts as the end of a sentence.

    >>> import torch
    >>> lm = NGram.train(["a b", "a b", "b a"], order=2)
    >>> scorer = NGramScorer(lm, ["a", "b", "<eos>"], end=2)
    >>> scores = scorer.scores(scorer.advance(scorer.initial(1), torch.tensor([0])))
    >>> int(scores.argmax())
    1
    """

    only_lowers = True

    def __init__(self, lm: NGram, names: Sequence[str], *, weight: float = 1.0, end: int | None = None) -> None:
        self.lm, self.weight = lm, weight
        self.names = ["</s>" if token == end else name for token, name in enumerate(names)]
        self._known: dict[object, Array] = {}  # by state of the model

    def initial(self, rows: int) -> State:
        return Rows([self.lm.initial()] * rows)

    def scores(self, state: State) -> Array:
        for one in state:
            if one not in self._known:
                scores = [self.lm.advance(one, name)[0] for name in self.names]
                self._known[one] = np.float32(self.weight) * np.array(scores, dtype=np.float32)
        return np.stack([self._known[one] for one in state])

    def advance(self, state: State, tokens: Array) -> State:
        return Rows(
            self.lm.advance(one, self.names[token])[1] for one, token in zip(state, tokens.tolist(), strict=True)
        )
