"""Results of a search over frames."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Word(NamedTuple):
    """A word and its frames, from the first of its first label to the one after the last of its last."""

    text: str
    start: int
    end: int
    known: bool | None = True  # False: not in the lexicon, spelt by its labels; None: there is no lexicon
    confidence: float | None = None  # see `word_confidences`; None: not asked for


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


Times = Sequence[tuple[str, float, float]]
"""Labels, each with where it begins and ends."""


def reading_record(
    text: str, score: float, complete: bool, words: Iterable[tuple[Any, ...]], labels: Times
) -> dict[str, Any]:
    """One reading for a program to read; words are (text, start, end, known, confidence)."""
    names = ("text", "start", "end", "known", "confidence")
    return {
        "text": text,
        "score": score,
        "complete": complete,
        "words": [dict(zip(names, word, strict=True)) for word in words],
        "labels": [{"label": label, "start": start, "end": end} for label, start, end in labels],
    }


def utterance_record(name: str, unit: str, readings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """An input and its readings, the best first: what `unrolled run` and `unrolled decode` write with --json."""
    return {"input": name, "unit": unit, **readings[0], "n_best": list(readings)}
