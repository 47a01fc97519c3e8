"""n-gram models score as the ARPA format defines it, on both engines."""

from __future__ import annotations

import math
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.search.ngram.engines import ENGINES, needs_native
from unrolled.errors import UserError
from unrolled.kernels.native_module import NATIVE
from unrolled.search import NGram
from unrolled.search.ngram.native import NativeNGram
from unrolled.search.ngram.plain import PlainNGram

LN10 = math.log(10)

# From <s>: the stored trigram, then a back-off over two orders, then one over one, then an unknown word.
SMALL = r"""
\data\
ngram 1=6
ngram 2=4
ngram 3=1

\1-grams:
-2.0	<unk>	0
-99	<s>	-0.5
-0.7	</s>
-0.8	a	-0.25
-0.9	b	-0.125
-1.0	c

\2-grams:
-0.3	<s> a	-0.0625
-0.4	a b	-0.03125
-0.35	b </s>
-0.45	b a

\3-grams:
-0.1	<s> a b

\end\
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "small.arpa").write_text(SMALL)
    return tmp_path / "small.arpa"


@pytest.mark.parametrize("backend", ENGINES)
def test_back_off_by_hand(backend: Any, small: Path) -> None:
    model = NGram.load(small, backend=backend)
    expected = [
        ("a", -0.3, 2, True),  # <s> a
        ("b", -0.1, 3, True),  # <s> a b
        ("c", -0.03125 - 0.125 - 1.0, 1, True),  # backoff(a b) + backoff(b) + c
        ("x", -2.0, 1, False),  # nothing after c is known
        ("b", -0.9, 1, True),
        ("</s>", -0.35, 2, True),  # b </s>
    ]
    scores = model.scores("a b c x b")
    assert [(s.word, s.length, s.known) for s in scores] == [(w, n, k) for w, _, n, k in expected]
    assert [s.log_prob / LN10 for s in scores] == pytest.approx([p for _, p, _, _ in expected], abs=1e-6)
    assert model.score("a b c x b") == pytest.approx(sum(p for _, p, _, _ in expected) * LN10, abs=1e-5)
    assert model.score(["a", "b"], end=False) == pytest.approx(-0.4 * LN10, abs=1e-6)
    assert model.counts == [6, 4, 1]
    assert "a" in model
    assert "x" not in model
    assert "<unk>" not in model


@pytest.mark.parametrize("backend", ENGINES)
def test_a_scorer_of_a_search(backend: Any, small: Path) -> None:
    model = NGram.load(small, backend=backend)
    state, total = model.initial(), 0.0
    for word in ("a", "b", "a"):
        score, state = model.advance(state, word)
        total += score
    assert total + model.final(state) == pytest.approx(model.score("a b a"))


@pytest.mark.parametrize("backend", ENGINES)
def test_equal_futures_are_equal_states(backend: Any, small: Path) -> None:
    """Nothing continues "c", and it has no back-off: whatever came before is forgotten."""
    model = NGram.load(small, backend=backend)
    first = model.advance(model.initial(), "c")[1]
    second = model.advance(model.advance(model.initial(), "b")[1], "c")[1]
    assert first == second
    assert hash(first) == hash(second)
    assert model.initial() != first


@pytest.mark.parametrize("backend", ENGINES)
def test_perplexity(backend: Any, small: Path) -> None:
    model = NGram.load(small, backend=backend)
    scores = model.evaluate(["a b x", "", "  ", "b"])
    everything = [s for text in ("a b x", "b") for s in model.scores(text)]
    known = [s.log_prob for s in everything if s.known]
    assert scores["words"] == 4
    assert scores["unknown"] == 1
    assert scores["sentences"] == 2
    assert scores["log_prob"] == pytest.approx(sum(s.log_prob for s in everything))
    assert scores["perplexity"] == pytest.approx(math.exp(-scores["log_prob"] / 6))
    assert scores["perplexity"] == model.perplexity(["a b x", "b"])
    assert scores["perplexity_known"] == pytest.approx(math.exp(-sum(known) / 5))
    with pytest.raises(UserError, match=r"^There are no words in the sentences\. Give a text with a sentence on each"):
        model.evaluate([" "])


@pytest.mark.parametrize("backend", ENGINES)
def test_a_model_without_unknown_words(backend: Any, tmp_path: Path) -> None:
    (tmp_path / "m.arpa").write_text("\\data\\\nngram 1=2\n\n\\1-grams:\n-99\t<s>\n-0.5\t</s>\n\n\\end\\\n")
    model = NGram.load(tmp_path / "m.arpa", backend=backend)
    assert model.score("x", end=False) == pytest.approx(-100 * LN10)
    assert model.initial() == model.advance(model.initial(), "x")[1]
    model.save(tmp_path / "again.arpa")
    assert "<unk>" not in (tmp_path / "again.arpa").read_text()


def test_an_engine_that_is_not_there(small: Path) -> None:
    with pytest.raises(UserError, match=r"^Unknown engine 'torch'\. Choices: auto, native, reference\.$"):
        NGram.load(small, backend="torch")  # type: ignore[arg-type]


WORDS = ["<s>", "</s>", "<unk>", "a", "b", "c"]
LOG10 = st.floats(-4, 0, width=32)
BACKOFF = st.one_of(st.just(0.0), st.floats(-3, 1, width=32))


@st.composite
def models(draw: st.DrawFn) -> tuple[NGram, NGram]:
    """The same n-grams in both engines; what leads to an n-gram may be missing."""
    order = draw(st.integers(1, 4))
    plain, native = PlainNGram(order), NATIVE.NGramModel(order)
    for word in draw(st.permutations(WORDS)):
        prob, backoff = draw(LOG10), draw(BACKOFF) if order > 1 else 0.0
        assert plain.add([word], prob, backoff)
        assert native.add_unigram(word, prob, backoff)
    for length in range(2, order + 1):
        ngrams = st.lists(st.lists(st.sampled_from(WORDS), min_size=length, max_size=length), max_size=12)
        for words in draw(ngrams):
            prob, backoff = draw(LOG10), draw(BACKOFF) if length < order else 0.0
            is_new = plain.add(words, prob, backoff)
            assert native.add([native.find(word) for word in words], prob, backoff) == is_new
    native.finish_building()
    return NGram(plain), NGram(NativeNGram(native))


@needs_native
@settings(deadline=None)
@given(models(), st.lists(st.sampled_from([*WORDS, "x"]), max_size=12))
def test_both_engines_agree(both: tuple[NGram, NGram], sentence: list[str]) -> None:
    plain, native = both
    for expected, got in zip(plain.scores(sentence), native.scores(sentence), strict=True):
        assert got[::2] == expected[::2]
        assert got.known == expected.known
        assert got.log_prob == pytest.approx(expected.log_prob, abs=1e-4)
    assert plain.counts == native.counts
    states = [(plain.initial(), native.initial())]
    for word in sentence:
        states.append((plain.advance(states[-1][0], word)[1], native.advance(states[-1][1], word)[1]))
    for (plain_before, native_before), (plain_after, native_after) in pairwise(sorted(states, key=repr)):
        assert (plain_before == plain_after) == (native_before == native_after)


@pytest.mark.skipif("UNROLLED_DATA" not in os.environ, reason="UNROLLED_DATA is not set")
@pytest.mark.parametrize("backend", ENGINES)
def test_golden_scores(backend: Any) -> None:
    """flashlight's own test of its decoder's language model."""
    model = NGram.load(Path(os.environ["UNROLLED_DATA"]) / "ctc_decoding" / "lm.arpa.gz", backend=backend)
    scores = [s.log_prob / LN10 for s in model.scores("the cat sat on the mat")]
    golden = [-1.05971, -4.19448, -3.33383, -2.76726, -1.16237, -4.64589]
    assert scores[:6] == pytest.approx(golden, abs=1e-5)
    assert sum(scores) == pytest.approx(-19.5123, abs=1e-4)
    assert model.counts == [200003, 433, 17]
