"""How much each word of a text speaks for a label."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MOST_PIECES = 400  # left out one by one; of a longer text, neighbouring words together


@dataclass(frozen=True)
class Attribution:
    """log p(label | text) − log p(label | the text without a word), for each word.

    Above 0 a word speaks for the label, below 0 against it. Of a long text, several neighbouring words are left out
    together: `words_each` of them. With several labels at once p is that of all of them as they should be.
    """

    label: str
    words: list[str]
    scores: list[float]
    words_each: int = 1

    def __str__(self) -> str:
        """The words that matter most, the strongest first."""
        order = sorted(range(len(self.words)), key=lambda i: -abs(self.scores[i]))
        rows = [f"{self.scores[i]:>9.4f}  {self.words[i]}" for i in order[:20]]
        return "\n".join([f"log p({self.label}) falls by so much without", *rows])


def attribute_words(text: str, label: str, log_probs: Callable[[Sequence[str]], Sequence[float]]) -> Attribution:
    """Leaves out each word of a text in turn; `log_probs` gives log p(label) of texts.

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
