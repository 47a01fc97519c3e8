"""Error rates of recognised texts, by jiwer: characters, words, labels, and exact matches."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from unrolled.errors import UserError

ReferenceKind = Literal["words", "labels"]


@dataclass(frozen=True)
class RecognitionScores:
    """Shares: errors (substitutions, deletions, insertions) for each character or word of the references.

    `cer` and `wer` exceed 1 with many insertions. For empty references they count the insertions.
    """

    cer: float
    wer: float
    exact_match: float


def recognition_scores(outputs: Sequence[str], references: Sequence[str]) -> RecognitionScores:
    """Corpus scores of texts.

    >>> recognition_scores(["three fife", "one"], ["three five", "one"])
    RecognitionScores(cer=0.07692307692307693, wer=0.3333333333333333, exact_match=0.5)
    """
    import jiwer

    outputs, references = list(outputs), list(references)
    if not outputs:
        return RecognitionScores(0.0, 0.0, 1.0)
    letters = jiwer.process_characters(references, outputs)
    cer = _rate(letters.substitutions, letters.deletions, letters.insertions, letters.hits)
    return RecognitionScores(cer, symbol_error_rate(outputs, references), exact_match(outputs, references))


def symbol_error_rate(outputs: Sequence[str], references: Sequence[str]) -> float:
    """Errors for each symbol of the references; symbols have spaces between. Of words it is the word error rate.

    >>> symbol_error_rate(["D AO K"], ["D AO G Z"])
    0.5
    """
    import jiwer

    if not outputs:
        return 0.0
    words = jiwer.process_words(list(references), list(outputs))
    return _rate(words.substitutions, words.deletions, words.insertions, words.hits)


def nearest_error_rate(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """`symbol_error_rate` against the reference of each output that it is nearest to, by its own error rate.

    >>> nearest_error_rate(["T AH M AA T OW"], [["T AH M EY T OW", "T AH M AA T OW"]])
    0.0
    """
    nearest = [
        refs[0] if len(refs) == 1 else min(refs, key=lambda one: symbol_error_rate([output], [one]))
        for output, refs in zip(outputs, references, strict=True)
    ]
    return symbol_error_rate(outputs, nearest)


def exact_match(outputs: Sequence[str], references: Sequence[str]) -> float:
    """The share of texts without an error."""
    return sum(a == b for a, b in zip(outputs, references, strict=True)) / len(outputs) if outputs else 1.0


def reference_kind(
    references: Sequence[str], labels: Collection[str], words: Collection[str], asked: ReferenceKind | None = None
) -> ReferenceKind:
    """Tells references that are words of a lexicon from references that are labels; both have spaces between.

    The kind is the one that more of their parts belong to, if they are at least twice as many. Otherwise it is an
    error that asks for the kind. Without a lexicon `words` is empty.

    >>> reference_kind(["dog bites man"], {"D", "AO", "G"}, {"dog", "man"})
    'words'
    """
    if asked is not None:
        return asked
    parts = [part for reference in references for part in reference.split()]
    sets = {"labels": frozenset(labels), "words": frozenset(words)}
    known = {kind: sum(part in names for part in parts) for kind, names in sets.items()}
    if not parts or known["labels"] >= max(1, 2 * known["words"]):
        return "labels"
    if known["words"] >= max(1, 2 * known["labels"]):
        return "words"
    if not words:
        raise UserError(
            f"No part of the references is a label, such as {next(iter(labels))}: the first is {parts[0]!r}.",
            "Give references of labels with spaces between; or, if they are words, a lexicon too (--lexicon).",
        )
    raise UserError(
        f"The references may be labels or words: of their {len(parts):,} parts {known['labels']:,} are labels and "
        f"{known['words']:,} are words of the lexicon.",
        "Say what they are: --reference-kind words or --reference-kind labels.",
    )


def _rate(substitutions: int, deletions: int, insertions: int, hits: int) -> float:
    return (substitutions + deletions + insertions) / max(1, substitutions + deletions + hits)
