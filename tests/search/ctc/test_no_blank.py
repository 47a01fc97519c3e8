"""Posteriors without a blank, such as a frame classifier's or an HMM's: every reading scored by brute force."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from tests.search.ctc.exhaustive import log_probs_of, merge
from tests.search.ctc.test_dictionary_search import BACKENDS, TEXT, trained
from unrolled.search import Decoder, Lexicon

LABELS = ["a", "b", "c"]
SPELLINGS = {"A": ["a"], "AB": ["ab", "aab"], "B": ["b"], "ABBA": ["abba"], "BC": ["bc"]}  # labels double, words touch
FRAMES = 5


def segmentations(log_probs: Tensor, labels: list[int]) -> Iterator[float]:
    """The score of every way to cut the frames into one part for each label, none of them empty."""
    for cuts in itertools.combinations(range(1, len(log_probs)), len(labels) - 1):
        edges = itertools.pairwise((0, *cuts, len(log_probs)))
        yield sum(float(log_probs[a:b, label].sum()) for label, (a, b) in zip(labels, edges, strict=True))


def sentences(log_probs: Tensor, add: bool) -> dict[tuple[str, ...], float]:
    """The score of every sequence of words that fits into the frames."""
    ways = [(word, spelling) for word, several in SPELLINGS.items() for spelling in several]
    found: dict[tuple[str, ...], list[float]] = {}
    for count in range(1, len(log_probs) + 1):
        for sentence in itertools.product(ways, repeat=count):
            labels = [LABELS.index(label) for _, spelling in sentence for label in spelling]
            scores = segmentations(log_probs, labels)
            found.setdefault(tuple(word for word, _ in sentence), []).extend(scores)
    return {words: merge(scores, add) for words, scores in found.items() if scores}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("way", ["max", "sum"])
@pytest.mark.parametrize("with_lm", [False, True])
def test_every_sentence_is_scored(backend: str, way: str, with_lm: bool) -> None:
    lm = trained(TEXT, 2, backend) if with_lm else None
    log_probs = log_probs_of(FRAMES, len(LABELS), scale=2.0)
    expected = {
        words: score + 0.3 * len(words) + (0.8 * lm.score(words) if lm else 0.0)
        for words, score in sentences(log_probs, way == "sum").items()
    }
    decoder = Decoder(
        LABELS,
        Lexicon(SPELLINGS, LABELS),
        lm,
        blank="none",
        merge=way,
        beam=10**6,
        margin=math.inf,
        word_bonus=0.3,
        lm_weight=0.8,
        backend=backend,
    )
    found = decoder.decode(log_probs, n_best=10**6)
    assert {tuple(word.text for word in one.words): one.score for one in found} == pytest.approx(expected, abs=1e-4)
    if way == "max":
        assert decoder.decode(log_probs)[0].score == pytest.approx(max(expected.values()), abs=1e-4)  # recombined
    stream = decoder.stream()
    for frame in log_probs:
        stream.feed(frame[None])
    assert stream.best()[0].text == decoder.decode(log_probs)[0].text


@pytest.mark.parametrize("backend", BACKENDS)
def test_words_that_touch_need_nothing_between_them(backend: str) -> None:
    """A classifier of frames hears D AO G G OW: the two G are of two words. With silence as the blank they are not."""
    labels = ["sil", "D", "AO", "G", "OW"]
    lexicon = {"dog": [["D", "AO", "G"]], "go": [["G", "OW"]], "owed": [["OW", "D"]]}
    heard = torch.full((10, 5), 0.01)
    for frame, label in enumerate(["D", "D", "AO", "AO", "G", "G", "G", "OW", "OW", "OW"]):
        heard[frame, labels.index(label)] = 0.96
    words, frames = Lexicon(lexicon, labels), heard / heard.sum(1, keepdim=True)
    (best,) = Decoder(labels, words, blank="none", backend=backend).decode(frames, kind="probs", confidence=True)
    assert best.text == "dog go"
    assert [(word.start, word.end) for word in best.words][1][1] == 10
    assert all(word.confidence is not None and word.confidence > 0.5 for word in best.words)
    (parted,) = Decoder(labels, words, blank="sil", backend=backend).decode(frames, kind="probs")
    assert parted.score < best.score


def test_confidences_count_every_segmentation() -> None:
    """A word alone, with a doubled label: its confidence is the sum over all ways to cut the frames."""
    log_probs = log_probs_of(FRAMES, len(LABELS), scale=1.0)
    (best,) = Decoder(LABELS, Lexicon({"X": ["abba"]}, LABELS), blank="none").decode(log_probs, confidence=True)
    expected = sum(math.exp(score) for score in segmentations(log_probs, [0, 1, 1, 0]))
    assert best.words[0].confidence == pytest.approx(expected, rel=1e-4)


def test_without_a_lexicon_equal_frames_are_one_label() -> None:
    frames = torch.eye(3)[[0, 0, 1, 1, 1, 0]] * 0.7 + 0.1
    (best,) = Decoder(LABELS, blank="none").decode(frames, kind="probs")
    assert best.text == "aba"
    assert best.spans == [(0, 2), (2, 5), (5, 6)]
