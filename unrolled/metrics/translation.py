"""BLEU, chrF and TER by sacrebleu, with its signature; exact matches; BLEU by source length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MOST_BUCKETS = 10
WIDTHS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
# Scripts without blanks, where sacrebleu's default tokenizer takes a sentence for one word.
_HAN = ((0x3400, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
_OTHERS = ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3040, 0x30FF))


@dataclass(frozen=True)
class TranslationScores:
    """Corpus scores from 0 to 100 (TER: 0 is best, and it can pass 100); `exact_match` is a share from 0 to 1."""

    bleu: float
    bleu_signature: str
    chrf: float
    ter: float
    exact_match: float


def bleu_tokenizer(references: Sequence[str], *, symbols: bool = False) -> str:
    """The tokenizer sacrebleu should use: 13a, its own choice, unless the text is symbols or has no blanks.

    >>> [bleu_tokenizer([text]) for text in ("Ein Hund.", "猫在这里", "ねこ")]
    ['13a', 'zh', 'char']
    """
    if symbols:
        return "none"
    letters = [ord(c) for text in references[:1000] for c in text if c.isalpha()]
    if 4 * sum(_within(c, _OTHERS) for c in letters) > len(letters):
        return "char"
    return "zh" if 2 * sum(_within(c, _HAN) for c in letters) > len(letters) else "13a"


def translation_scores(
    outputs: Sequence[str], references: Sequence[Sequence[str]], *, tokenize: str = "13a", lowercase: bool = False
) -> TranslationScores:
    """Scores of outputs; `references` are one or more for each of them, by sacrebleu's rules for several references.

    >>> scores = translation_scores(["the cat sat on the mat"], [["the cat sat on a mat", "the cat is on the mat"]])
    >>> round(scores.bleu, 1), scores.exact_match
    (70.7, 0.0)
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    bleu = BLEU(tokenize=tokenize, lowercase=lowercase)
    columns = reference_columns(references)
    total = bleu.corpus_score(list(outputs), columns).score
    chrf = CHRF(lowercase=lowercase).corpus_score(list(outputs), columns).score
    ter = TER(case_sensitive=not lowercase).corpus_score(list(outputs), columns).score
    exact = exact_share(outputs, references, lowercase)
    return TranslationScores(total, str(bleu.get_signature()), chrf, ter, exact)


def reference_columns(references: Sequence[Sequence[str]]) -> list[Any]:
    """References by row as sacrebleu's columns: the first of every row, the second, …; None where a row has fewer.

    >>> reference_columns([["a", "b"], ["c"]])
    [['a', 'c'], ['b', None]]
    """
    most = max(map(len, references), default=1)
    return [[refs[i] if i < len(refs) else None for refs in references] for i in range(most)]


def exact_share(outputs: Sequence[str], references: Sequence[Sequence[str]], lowercase: bool) -> float:
    """The share of outputs that equal one of their references."""
    pairs = zip(outputs, references, strict=True)
    return sum(any(same_text(o, one, lowercase) for one in refs) for o, refs in pairs) / max(1, len(outputs))


def bleu_of(outputs: Sequence[str], references: Sequence[Sequence[str]], *, tokenize: str, lowercase: bool) -> float:
    """Corpus BLEU; `references` are one or more for each output."""
    from sacrebleu.metrics.bleu import BLEU

    bleu = BLEU(tokenize=tokenize, lowercase=lowercase)
    score: float = bleu.corpus_score(list(outputs), reference_columns(references)).score
    return score


def chrf_of(outputs: Sequence[str], references: Sequence[str], *, lowercase: bool) -> float:
    """Corpus chrF with one reference each."""
    from sacrebleu.metrics.chrf import CHRF

    score: float = CHRF(lowercase=lowercase).corpus_score(list(outputs), [list(references)]).score
    return score


def by_length(
    lengths: Sequence[int],
    outputs: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tokenize: str,
    lowercase: bool,
) -> dict[str, dict[str, Any]]:
    """BLEU and exact matches by the number of source tokens: "6-10" → its scores.

    At most ten buckets of equal width, without empty ones.
    """
    longest = max(lengths, default=1)
    width = next((w for w in WIDTHS if longest <= w * MOST_BUCKETS), WIDTHS[-1])
    table: dict[str, dict[str, Any]] = {}
    for start in range(1, longest + 1, width):
        rows = [i for i, length in enumerate(lengths) if start <= max(1, length) < start + width]
        if not rows:
            continue
        some, right = [outputs[i] for i in rows], [references[i] for i in rows]
        exact = exact_share(some, right, lowercase)
        name = str(start) if width == 1 else f"{start}-{start + width - 1}"
        bleu = bleu_of(some, right, tokenize=tokenize, lowercase=lowercase)
        table[name] = {"bleu": bleu, "exact_match": exact, "sentences": len(rows)}
    return table


def same_text(output: str, reference: str, lowercase: bool) -> bool:
    """True if two texts are equal up to blanks and, with `lowercase`, case."""
    left, right = " ".join(output.split()), " ".join(reference.split())
    return left.lower() == right.lower() if lowercase else left == right


def _within(code: int, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(low <= code <= high for low, high in ranges)
