"""Choosing again among the best answers of a search, with a language model that was too slow to be in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from unrolled.errors import UserError
from unrolled.search.ngram.plain import words_of


class TextScorer(Protocol):
    """Whatever gives whole texts their log-probabilities: a trained model of `generate`, an NGram."""

    def log_prob(self, texts: Sequence[str]) -> list[float]: ...


class Rescored(NamedTuple):
    """An answer with its new score, and what that was made of."""

    text: str
    score: float
    given: float  # by the search
    log_prob: float  # by the language model
    place: int = 0  # in the given list


def rescore(
    candidates: Sequence[tuple[str, float]],
    scorer: TextScorer,
    *,
    weight: float,
    word_bonus: float = 0.0,
    divisors: Sequence[float] | None = None,
) -> list[Rescored]:
    """An n-best list in a new order: score = given score + (weight · log p(text) + word_bonus · words) / divisor.

    All texts go to the language model at once. Where scores are equal, the old order stays. The `divisors` are those of
    a search that divides by length: the language model then counts as if it had been in that search.

    >>> class Shorter:
    ...     def log_prob(self, texts):
    ...         return [-float(len(text)) for text in texts]
    >>> [best, *_] = rescore([("dock buys man", -1.0), ("dog bit man", -1.5)], Shorter(), weight=0.5)
    >>> best
    Rescored(text='dog bit man', score=-7.0, given=-1.5, log_prob=-11.0, place=1)
    """
    for name, number in (("weight", weight), ("word_bonus", word_bonus)):
        if not math.isfinite(number):
            raise UserError(f"{name}={number} is not a finite number.", "0.5 is a weight to begin with.")
    for place, (text, given) in enumerate(candidates):
        if math.isnan(given):
            raise UserError(f"candidates[{place}] has the score NaN: {text!r}.", "Check the search's input for NaN.")
    log_probs = scorer.log_prob([text for text, _ in candidates])
    shares = [1.0] * len(candidates) if divisors is None else divisors
    rescored = [
        Rescored(text, given + (weight * log_prob + word_bonus * len(words_of(text))) / share, given, log_prob, place)
        for place, ((text, given), log_prob, share) in enumerate(zip(candidates, log_probs, shares, strict=True))
    ]
    return sorted(rescored, key=lambda one: -one.score)
