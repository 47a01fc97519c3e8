"""Weights of words in a search."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from unrolled.errors import UserError


@dataclass(frozen=True)
class WordWeights:
    """The score that words add to a model's own, in natural logarithms:

    lm_weight · log p(words) + word_bonus · number of words + unknown_penalty · number of words outside the lexicon
    """

    lm_weight: float = 1.0
    word_bonus: float = 0.0
    unknown_penalty: float | None = None  # none: there are no words but those of the lexicon
    look_ahead: bool = True  # inside a word, the best unigram score of the words that begin so is counted already

    def __post_init__(self) -> None:
        if not 0 <= self.lm_weight < math.inf:
            raise UserError(f"lm_weight={self.lm_weight!r} is not a number from 0 up.")
        for name in ("word_bonus", "unknown_penalty"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise UserError(f"{name}={value!r} is not a number.")


def check_used(lexicon: Any, lm: Any, *, lm_weight: float | None, **of_words: Any) -> None:
    """Refuses options, none where they are not given, that would change nothing without a lexicon or a model."""
    if lm_weight is not None and lm is None:
        raise UserError("lm_weight is for a language model, and there is none.", "Give one with lm (--lm).")
    for name, value in of_words.items():
        if value is not None and lexicon is None:
            raise UserError(f"{name} is for words of a lexicon, and there is none.", "Give one (--lexicon).")
