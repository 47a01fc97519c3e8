"""Scores of captions against several references each: BLEU-1 to 4 and chrF by sacrebleu, and CIDEr-D."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from unrolled.metrics.translation import reference_columns, same_text

NGRAMS = 4
SIGMA = 6.0  # of the Gaussian on the difference of lengths

Grams = list[Counter[tuple[str, ...]]]
"""Counts of n-grams, one counter for each n from 1 to 4."""


@dataclass(frozen=True)
class CaptionScores:
    """Corpus scores: BLEU and chrF from 0 to 100, CIDEr-D from 0 to 10, `exact_match` a share from 0 to 1."""

    bleu1: float
    bleu2: float
    bleu3: float
    bleu4: float
    bleu_signature: str
    chrf: float
    cider: float
    exact_match: float


def caption_scores(
    outputs: Sequence[str], references: Sequence[Sequence[str]], *, tokenize: str = "13a", lowercase: bool = False
) -> CaptionScores:
    """Scores of outputs; `references` are one or more for each of them.

    >>> scores = caption_scores(["a dog runs", "two men"], [["a dog runs", "a dog is running"], ["two women"]])
    >>> round(scores.bleu1), scores.exact_match
    (80, 0.5)
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    columns = reference_columns(references)
    metric = BLEU(tokenize=tokenize, lowercase=lowercase)
    found = metric.corpus_score(list(outputs), columns)  # counts of all orders, of which the first n are BLEU-n's
    bleu = [
        BLEU.compute_bleu(
            found.counts[:order], found.totals[:order], found.sys_len, found.ref_len, "exp", max_ngram_order=order
        ).score
        for order in (1, 2, 3, 4)
    ]
    chrf = CHRF(lowercase=lowercase).corpus_score(list(outputs), columns).score

    def words(text: str) -> list[str]:
        text = text.lower() if lowercase else text
        split: list[str] = metric.tokenizer(text.rstrip()).split()
        return split

    cider = cider_d([words(text) for text in outputs], [[words(text) for text in refs] for refs in references])
    exact = sum(
        any(same_text(output, text, lowercase) for text in refs)
        for output, refs in zip(outputs, references, strict=True)
    )
    number = max(1, len(outputs))
    signature = str(metric.get_signature())
    return CaptionScores(bleu[0], bleu[1], bleu[2], bleu[3], signature, chrf, sum(cider) / number, exact / number)


def cider_d(outputs: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]) -> list[float]:
    """CIDEr-D of each output (words) against its references (Vedantam et al. 2015).

        g_n(s) = (count of ω in s) · log(N / pictures with ω in a reference)               for every n-gram ω
        CIDEr-D_n = 10 / m Σ_j e^(−(l_c − l_sj)² / 2σ²) · min(g_n(c), g_n(s_j)) · g_n(s_j) / (‖g_n(c)‖ ‖g_n(s_j)‖)
        CIDEr-D = mean over n = 1 … 4,  σ = 6

    As in the authors' code, l counts the 2-grams. Scores depend on the number of pictures: compare equal sets.

    >>> [round(score, 2) for score in cider_d([["a", "dog"], ["red"]], [[["a", "dog"]], [["a", "red", "car"]]])]
    [5.0, 1.67]
    """
    counted = [[_grams(text) for text in texts] for texts in references]
    found: Counter[tuple[str, ...]] = Counter()
    for texts in counted:
        found.update({gram for grams in texts for counter in grams for gram in counter})
    log_pictures = math.log(max(1, len(counted)))
    weights = {gram: log_pictures - math.log(count) for gram, count in found.items()}
    scores = []
    for output, texts in zip(outputs, counted, strict=True):
        mine = _Weighted(_grams(output), weights, log_pictures)
        likeness = [mine.likeness(_Weighted(grams, weights, log_pictures)) for grams in texts]
        scores.append(10.0 * sum(likeness) / len(likeness))
    return scores


class _Weighted:
    """The n-grams of a text, weighted by inverse document frequency."""

    def __init__(self, grams: Grams, weights: dict[tuple[str, ...], float], unseen: float) -> None:
        self.length = grams[1].total()
        self.vectors = [{gram: n * weights.get(gram, unseen) for gram, n in counter.items()} for counter in grams]
        self.norms = [math.sqrt(sum(value * value for value in vector.values())) for vector in self.vectors]

    def likeness(self, reference: _Weighted) -> float:
        """The mean over n of the clipped cosine, with a length penalty."""
        total = 0.0
        norms = [left * right for left, right in zip(self.norms, reference.norms, strict=True)]
        for mine, other, norm in zip(self.vectors, reference.vectors, norms, strict=True):
            common = sum(min(value, other[gram]) * other[gram] for gram, value in mine.items() if gram in other)
            total += common / norm if norm else common
        return total / NGRAMS * math.exp(-((self.length - reference.length) ** 2) / (2 * SIGMA**2))


def _grams(words: Sequence[str]) -> Grams:
    return [Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1)) for n in range(1, NGRAMS + 1)]
