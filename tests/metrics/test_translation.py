"""Scores of translations against sacrebleu called directly."""

from __future__ import annotations

from typing import Any

import pytest
import sacrebleu
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from unrolled.metrics.translation import by_length, translation_scores

OUTPUTS = ["the cat sat on the mat", "It is raining today .", "a b", "no one knows what this is about"]
FIRST = ["the cat sat on a mat", "it rains today .", "a b", "nobody knows what this is about"]
SECOND = ["a cat was sitting on the mat", "It is raining today.", "b a", "no one knows what this is"]


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("tokenize", ["13a", "none", "char", "zh"])
def test_scores_with_several_references(lowercase: bool, tokenize: str) -> None:
    scores = translation_scores(OUTPUTS, list(zip(FIRST, SECOND, strict=True)), tokenize=tokenize, lowercase=lowercase)
    bleu = sacrebleu.corpus_bleu(OUTPUTS, [FIRST, SECOND], tokenize=tokenize, lowercase=lowercase)
    assert scores.bleu == bleu.score
    assert (
        scores.chrf
        == sacrebleu.corpus_chrf(
            [o.lower() if lowercase else o for o in OUTPUTS],
            [[r.lower() if lowercase else r for r in column] for column in (FIRST, SECOND)],
        ).score
    )
    assert scores.exact_match == 0.25
    assert scores.bleu_signature.startswith(f"nrefs:2|case:{'lc' if lowercase else 'mixed'}|eff:no|tok:{tokenize}|")


def test_by_length_every_sentence_is_in_one_bucket() -> None:
    lengths = [3, 40, 0, 17]
    table = by_length(lengths, OUTPUTS, [[one] for one in FIRST], tokenize="13a", lowercase=False)
    assert list(table) == ["1-5", "16-20", "36-40"]
    assert sum(row["sentences"] for row in table.values()) == 4
    alone = sacrebleu.corpus_bleu([OUTPUTS[1]], [[FIRST[1]]]).score
    assert table["36-40"] == {"bleu": alone, "exact_match": 0.0, "sentences": 1}


def test_rows_with_different_numbers_of_references() -> None:
    """As sacrebleu scores them: None stands for a reference that is not there."""
    references = [[FIRST[0], SECOND[0]], [FIRST[1]], [FIRST[2], SECOND[2]], [FIRST[3]]]
    scores = translation_scores(OUTPUTS, references)
    columns: list[Any] = [FIRST, [SECOND[0], None, SECOND[2], None]]
    assert scores.bleu == BLEU().corpus_score(OUTPUTS, columns).score
    assert scores.chrf == CHRF().corpus_score(OUTPUTS, columns).score
    assert scores.ter == TER(case_sensitive=True).corpus_score(OUTPUTS, columns).score
    assert scores.bleu_signature.startswith("nrefs:var|")
    assert scores.bleu > translation_scores(OUTPUTS, [[one] for one in FIRST]).bleu
