"""Word attribution: the contribution of each word of a text to a label."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MOST_PIECES = 400  # removed one by one; in a longer text, neighbouring words are removed together


@dataclass(frozen=True)
class Attribution:
    """log p(label | text) − log p(label | the text without a word), for each word.

    A word with a positive score supports the label, a negative one opposes it. In a long text, `words_each`
    neighbouring words are removed together. With several labels at once, p is the probability of all correct labels.
    """

    label: str
    words: list[str]
    scores: list[float]
    words_each: int = 1

    def __str__(self) -> str:
        """The 20 words with the largest scores."""
        order = sorted(range(len(self.words)), key=lambda i: -abs(self.scores[i]))
        rows = [f"{self.scores[i]:>9.4f}  {self.words[i]}" for i in order[:20]]
        return "\n".join([f"decrease of log p({self.label}) without each word", *rows])


def attribute_words(text: str, label: str, log_probs: Callable[[Sequence[str]], Sequence[float]]) -> Attribution:
    """Score each word by removing it; `log_probs` returns log p(label) of texts.

    >>> attribute_words("not good", "bad", lambda texts: [-1.0 if "not" in text else -3.0 for text in texts])
    Attribution(label='bad', words=['not', 'good'], scores=[2.0, 0.0], words_each=1)
    """
    words = list(re.finditer(r"\S+", text))
    each = max(1, math.ceil(len(words) / MOST_PIECES))
    groups = [words[start : start + each] for start in range(0, len(words), each)]
    without = [f"{text[: group[0].start()]}{text[group[-1].end() :]}" for group in groups]
    whole, *others = log_probs([text, *without])
    shown = [text[group[0].start() : group[-1].end()] for group in groups]
    return Attribution(label, shown, [whole - other for other in others], each)
