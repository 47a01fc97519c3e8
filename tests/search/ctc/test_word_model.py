"""The word model of the C++ search is an interface: a zero-gram stands in for the n-gram."""

from __future__ import annotations

import math

import pytest
import torch

from unrolled.kernels import ENGINES
from unrolled.search import Decoder, Lexicon

LABELS = ["-", "a", "b", " "]
WORDS = ["ab", "ba", "a", "bab"]


@pytest.mark.skipif("native" not in ENGINES, reason="the C++ core was not built")
@pytest.mark.parametrize("weight", [0.5, 1.0, 2.5])
@pytest.mark.parametrize("merge", ["max", "sum"])
def test_a_zero_gram_is_a_word_bonus(weight: float, merge: str) -> None:
    from unrolled.kernels import _native

    frames = torch.randn(14, 4).mul(2).log_softmax(-1)
    price = -weight * math.log(1000)
    lexicon = Lexicon(WORDS, LABELS)
    expected = Decoder(LABELS, lexicon, separator=" ", word_bonus=price, merge=merge, margin=math.inf, beam=500)
    model = _native.uniform_word_model(1000)
    uniform = expected.stream(n_best=9)
    options = _native.DictionaryOptions()
    options.labels, options.separator, options.beam = 4, 3, 500
    options.sum, options.recombine, options.lm_weight = merge == "sum", False, weight
    uniform.search = _native.DictionarySearch(
        _native.make_dictionary(lexicon._native_graph, model, lexicon.words), options
    )
    uniform.feed(frames)
    found, known = uniform.best(9), expected.decode(frames, n_best=9)
    assert [one.text for one in found] == [one.text for one in known]
    ends = [one.score - price for one in found]  # the zero-gram also scores the sentence's end
    assert ends == pytest.approx([one.score for one in known], abs=1e-4)
