"""Confidence of a word, against every path through the frames around it."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests.search.ctc.exhaustive import log_probs_of, paths, reads
from unrolled.search.ctc import Decoded, Decoder, word_confidences

LABELS = ["-", "a", "b", "|"]


def by_all_paths(found: Decoded, log_probs: Tensor, labels: list[str], separator: str) -> list[float]:
    spans = [(word.start, word.end) for word in found.words]
    befores = [0, *(end for _, end in spans)]
    afters = [*(start for start, _ in spans[1:]), len(log_probs)]
    result = []
    for word, begin, end in zip(found.words, befores, afters, strict=False):
        texts = (("".join(labels[i] for i in reads(path, 0)), score) for path, score in paths(log_probs[begin:end]))
        result.append(sum(math.exp(score) for text, score in texts if text.strip(separator) == word.text))
    return result


@pytest.mark.parametrize("separator", [None, "|"])
@pytest.mark.parametrize("with_lexicon", [True, False])
def test_adds_up_every_path_that_reads_the_word(separator: str | None, with_lexicon: bool) -> None:
    labels = LABELS if separator else LABELS[:3]
    for _ in range(5):
        log_probs = log_probs_of(6, len(labels), scale=2.0)
        words = ["a", "b", "ab", "bb", "aba"] if with_lexicon else None
        decoder = Decoder(labels, words, separator=separator, margin=math.inf)
        for found in decoder.decode(log_probs, n_best=6, confidence=True):
            if found.complete:
                expected = by_all_paths(found, log_probs, labels, separator or "")
                assert [word.confidence for word in found.words] == pytest.approx(expected, abs=1e-9)


def test_certain_words_have_confidence_one() -> None:
    frames = torch.eye(4)[[0, 1, 1, 0, 3, 2, 2]].log()
    (found,) = Decoder(LABELS, ["a", "b"], separator="|").decode(frames, confidence=True)
    assert [(word.text, word.confidence) for word in found.words] == [("a", 1.0), ("b", 1.0)]
    assert word_confidences(found, frames, 0, 3) == [1.0, 1.0]
    assert Decoder(LABELS, ["a", "b"], separator="|").decode(frames)[0].words[0].confidence is None
    (nothing,) = Decoder(LABELS).decode(torch.eye(4)[[0, 0]].log(), confidence=True)
    assert nothing.words == []


def test_a_doubled_letter_needs_a_blank_between() -> None:
    probs = torch.tensor([[0.1, 0.9], [0.6, 0.4], [0.2, 0.8]])
    (found,) = Decoder(["-", "a"], ["aa"]).decode(probs, kind="probs", confidence=True)
    assert found.words[0].confidence == pytest.approx(0.9 * 0.6 * 0.8)
