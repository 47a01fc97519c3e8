"""Scores of captions: BLEU and chrF against sacrebleu called directly, CIDEr-D against the code that was published."""

from __future__ import annotations

import random
from typing import Any

import pytest
import sacrebleu

from unrolled.metrics.captions import caption_scores, cider_d

OUTPUTS = ["a dog runs on the beach", "Two men are talking .", "a red car", "a child plays in the water with a ball"]
REFERENCES = [
    ["a brown dog runs along the beach", "a dog is running on the sand", "the dog runs"],
    ["Two men talk to each other .", "two men are talking ."],
    ["a red car"],
    ["a boy plays with a ball in the water", "a child in the water with a ball", "the child plays", "a kid swims"],
]
COLUMNS: list[Any] = [[refs[i] if i < len(refs) else None for refs in REFERENCES] for i in range(4)]


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("tokenize", ["13a", "none"])
def test_bleu_and_chrf_are_sacrebleus_with_any_number_of_references(lowercase: bool, tokenize: str) -> None:
    scores = caption_scores(OUTPUTS, REFERENCES, tokenize=tokenize, lowercase=lowercase)
    for order, score in enumerate((scores.bleu1, scores.bleu2, scores.bleu3, scores.bleu4), 1):
        metric = sacrebleu.BLEU(tokenize=tokenize, lowercase=lowercase, max_ngram_order=order)
        assert score == metric.corpus_score(OUTPUTS, COLUMNS).score
    assert scores.chrf == sacrebleu.CHRF(lowercase=lowercase).corpus_score(OUTPUTS, COLUMNS).score
    assert scores.bleu_signature.startswith(f"nrefs:var|case:{'lc' if lowercase else 'mixed'}|eff:no|tok:{tokenize}|")
    assert scores.exact_match == (0.5 if lowercase else 0.25)
    assert scores.bleu1 > scores.bleu2 > scores.bleu3 > scores.bleu4 > 0


def published(outputs: list[list[str]], references: list[list[list[str]]]) -> list[float]:
    cider = pytest.importorskip("pycocoevalcap.cider.cider", reason="pycocoevalcap is not installed")
    given = {i: [" ".join(text)] for i, text in enumerate(outputs)}
    wanted = {i: [" ".join(text) for text in texts] for i, texts in enumerate(references)}
    _, scores = cider.Cider().compute_score(wanted, given)
    return [float(score) for score in scores]


def test_cider_is_the_published_codes() -> None:
    outputs = [text.lower().split() for text in OUTPUTS]
    references = [[text.lower().split() for text in texts] for texts in REFERENCES]
    assert cider_d(outputs, references) == pytest.approx(published(outputs, references), abs=1e-12)


def test_cider_on_random_texts() -> None:
    """Repeated words, texts of one word, nothing in common, words no reference has, and an empty output."""
    draw = random.Random()
    words = [f"w{i}" for i in range(9)]

    def text(longest: int) -> list[str]:
        return draw.choices(words, weights=range(1, 10), k=draw.randint(1, longest))

    references = [[text(12) for _ in range(draw.randint(1, 5))] for _ in range(40)]
    outputs = [[] if i == 7 else [*text(12), "new"] if i % 5 == 0 else text(20) for i in range(40)]
    assert cider_d(outputs, references) == pytest.approx(published(outputs, references), abs=1e-12)
    assert cider_d(outputs, references)[7] == 0.0
