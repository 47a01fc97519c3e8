"""Error rates of recognised texts, by jiwer: characters, words, and exact matches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class RecognitionScores:
    """Shares: errors (substitutions, deletions, insertions) for each character or word of the references.

    `cer` and `wer` exceed 1 with many insertions. For empty references they count the insertions.
    """

    cer: float
    wer: float
    exact_match: float


def recognition_scores(
    outputs: Sequence[str], references: Sequence[str], *, symbols: bool = False
) -> RecognitionScores:
    """Corpus scores. For `symbols`, labels between blanks, both rates are the label error rate.

    >>> recognition_scores(["three fife", "one"], ["three five", "one"])
    RecognitionScores(cer=0.07692307692307693, wer=0.3333333333333333, exact_match=0.5)
    """
    import jiwer

    outputs, references = list(outputs), list(references)
    if not outputs:
        return RecognitionScores(0.0, 0.0, 1.0)
    words = jiwer.process_words(references, outputs)
    wer = _rate(words.substitutions, words.deletions, words.insertions, words.hits)
    cer = wer
    if not symbols:
        letters = jiwer.process_characters(references, outputs)
        cer = _rate(letters.substitutions, letters.deletions, letters.insertions, letters.hits)
    exact = sum(a == b for a, b in zip(outputs, references, strict=True)) / len(outputs)
    return RecognitionScores(cer, wer, exact)


def _rate(substitutions: int, deletions: int, insertions: int, hits: int) -> float:
    return (substitutions + deletions + insertions) / max(1, substitutions + deletions + hits)
