"""Dictionary search against flashlight-text's lexicon decoder with KenLM, on the same posteriors and ARPA file."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from unrolled.kernels import ENGINES
from unrolled.search import Decoder, Lexicon, NGram

decoder = pytest.importorskip("flashlight.lib.text.decoder")
kenlm = pytest.importorskip("flashlight.lib.text.decoder.kenlm")
dictionary = pytest.importorskip("flashlight.lib.text.dictionary")

LABELS = ["-", "|", *"abcdefghilmnorstuy"]
WORDS = ["dog", "dogs", "bites", "bite", "man", "men", "a", "the", "hill", "hello", "cat"]
TEXT = [
    "the dog bites a man",
    "a man bites the dog",
    "hello man",
    "the cat bites",
    "dogs bite the men",
    "the hill",
    "a dog",
]


def posteriors(sentence: str) -> Tensor:
    """Noise, and above it the sentence with a separator after each word."""
    path: list[int] = []
    for letter in sentence.replace(" ", "|") + "|":
        path += [LABELS.index(letter)] * int(torch.randint(1, 3, ()))
        path += [0] * int(torch.randint(1, 3, ()))
    logits = torch.randn(len(path), len(LABELS)) * 1.5
    logits[torch.arange(len(path)), path] += 4.0
    logits[-1, 1] += 20.0  # it asks for a separator at the end; we do not
    return logits.log_softmax(-1)


def their_best(
    arpa: Path, log_probs: Tensor, lm_weight: float, word_bonus: float, beam: int
) -> tuple[list[str], float]:
    words = dictionary.Dictionary()
    for word in [*WORDS, "<unk>"]:
        words.add_entry(word)
    lm = kenlm.KenLM(str(arpa), words)
    trie = decoder.Trie(len(LABELS), 1)
    start = lm.start(False)
    for number, word in enumerate(WORDS):
        trie.insert([LABELS.index(letter) for letter in word + "|"], number, lm.score(start, number)[1])
    trie.smear(decoder.SmearingMode.MAX)
    options = decoder.LexiconDecoderOptions(
        beam_size=beam,
        beam_size_token=len(LABELS),
        beam_threshold=1e6,
        lm_weight=lm_weight * math.log(10),
        word_score=word_bonus,
        unk_score=-math.inf,
        sil_score=0.0,
        log_add=False,
        criterion_type=decoder.CriterionType.CTC,
    )
    search = decoder.LexiconDecoder(options, trie, lm, 1, 0, len(WORDS), [], False)
    best = search.decode(log_probs.data_ptr(), *log_probs.shape)[0]
    return [WORDS[number] for number in best.words if number >= 0], best.score


@pytest.mark.skipif("native" not in ENGINES, reason="the native engine is not built")
@pytest.mark.filterwarnings("ignore::unrolled.errors.Note")
@pytest.mark.parametrize("sentence", ["the dog bites a man", "hello men", "dogs bite the cat", "a hill"])
@pytest.mark.parametrize(("lm_weight", "word_bonus"), [(0.0, 0.0), (0.7, 1.0), (2.0, -0.5)])
def test_same_words_and_scores(sentence: str, lm_weight: float, word_bonus: float, tmp_path: Path) -> None:
    arpa = tmp_path / "lm.arpa"
    NGram.train(TEXT, order=3).save(arpa)
    log_probs = posteriors(sentence).contiguous()
    words, score = their_best(arpa, log_probs, lm_weight, word_bonus, beam=3000)
    ours = Decoder(
        LABELS,
        Lexicon(WORDS, LABELS),
        NGram.load(arpa),
        separator="|",
        beam=3000,
        margin=math.inf,
        lm_weight=lm_weight,
        word_bonus=word_bonus,
    ).decode(log_probs)[0]
    assert [word.text for word in ours.words] == words
    assert ours.score == pytest.approx(score, abs=1e-3)
