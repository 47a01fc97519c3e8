"""What a search over frames finds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Word(NamedTuple):
    """A word and its frames, from the first of its first label to the one after the last of its last."""

    text: str
    start: int
    end: int
    known: bool = True  # False: not in the lexicon, spelt by its labels


@dataclass(frozen=True)
class Decoded:
    """One reading of the frames. Scores are natural logarithms; only differences between them mean something."""

    score: float
    labels: list[int]
    spans: list[tuple[int, int]]  # of each label: its first frame, and the one after its last
    words: list[Word] = field(default_factory=list)
    complete: bool = True  # False: the frames end inside a word, which is not among the words

    @property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)
