"""Mixtures of n-gram models: normalised, what the weights say where n-grams are stored, weights by EM."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.search.ngram.engines import ENGINES, needs_native
from tests.search.ngram.test_training import trained, zen
from unrolled.errors import UserError
from unrolled.search import NGram
from unrolled.search.ngram.mixing import fit_weights

FIRST = st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=6), min_size=1, max_size=12)
SECOND = st.lists(st.lists(st.sampled_from("cdef"), min_size=1, max_size=6), min_size=1, max_size=12)


def vocabulary(model: NGram) -> list[str]:
    return [words[0] for words, _, _ in model.ngrams(1) if words != ("<s>",)]


def after(model: NGram, words: tuple[str, ...]) -> Any:
    """The state after words, from a beginning if they start with <s>, else from anywhere."""
    plain = model.backend == "reference"
    state: Any = () if plain else 0
    for word in words:
        state = model.initial() if word == "<s>" else model.advance(state, word)[1]
    return state


@pytest.mark.parametrize("backend", ENGINES)
@settings(deadline=None, max_examples=40)
@given(FIRST, SECOND, st.integers(1, 3), st.integers(1, 3), st.floats(0.01, 0.99))
def test_a_mixture(backend: Any, one: Any, two: Any, order: int, other: int, weight: float) -> None:
    """Stored n-grams have the weighted mean; every context sums to one; a strange word is impossible for a model."""
    order, other = min(order, max(map(len, one)) + 1), min(other, max(map(len, two)) + 1)
    models = [trained(one, order=order, backend=backend), trained(two, order=other, backend=backend)]
    mixed, weights = NGram.mix(models, weights=[weight, 1 - weight])
    assert mixed.backend == backend
    assert weights == pytest.approx([weight, 1 - weight])
    words = vocabulary(mixed)
    assert set(words) == {word for model in models for word in vocabulary(model)}
    contexts = {entry.words[:-1] for length in range(1, mixed.order + 1) for entry in mixed.ngrams(length)}
    for context in contexts:
        total = math.fsum(math.exp(mixed.advance(after(mixed, context), word)[0]) for word in words)
        assert total == pytest.approx(1, abs=1e-5)
    for length in range(1, mixed.order + 1):
        for ngram, prob, _ in mixed.ngrams(length):
            if ngram == ("<s>",):
                continue
            expected = sum(
                share * math.exp(model.advance(after(model, ngram[:-1]), ngram[-1])[0])
                for share, model in zip(weights, models, strict=True)
                if ngram[-1] in model or ngram[-1] == "<unk>"
            )
            assert 10**prob == pytest.approx(expected, rel=1e-5)


@needs_native
@settings(deadline=None, max_examples=40)
@given(FIRST, SECOND, st.integers(1, 3), st.floats(0, 1))
@example([["b"], ["c", "b"], ["a", "c", "b"]], [["c"]], 2, 0.0)  # the estimated discount of a count of 2 is 0
def test_both_engines_agree(one: Any, two: Any, order: int, weight: float) -> None:
    order = min(order, max(map(len, one)) + 1)
    mixed = {}
    for backend in ("native", "reference"):
        models = [trained(one, order=order, backend=backend), trained(two, order=2, backend=backend)]
        mixed[backend] = NGram.mix(models, weights=[weight, 1 - weight])[0]
    for length in range(1, max(order, 2) + 1):
        expected = {words: (prob, backoff) for words, prob, backoff in mixed["reference"].ngrams(length)}
        found = {words: (prob, backoff) for words, prob, backoff in mixed["native"].ngrams(length)}
        assert found.keys() == expected.keys()
        assert all(found[words] == pytest.approx(expected[words], abs=1e-3) for words in found)


@pytest.mark.parametrize("backend", ENGINES)
def test_weights_are_fitted_to_a_text(backend: Any, tmp_path: Path) -> None:
    """EM finds what trying all weights finds; the mixture is better than either model."""
    lines = zen()
    models = [trained(lines[:8], order=2, backend=backend), trained(lines[8:14], order=2, backend=backend)]
    held_out = tmp_path / "held-out.txt"
    held_out.write_text("\n".join(lines[14:]) + "\n")
    mixed, weights = NGram.mix(models, text=held_out)
    assert sum(weights) == pytest.approx(1)

    probs = []
    for model in models:
        scores = [score for line in lines[14:] for score in model.scores(line)]
        probs.append(np.array([math.exp(score.log_prob) if score.known else 0.0 for score in scores]))
    known = probs[0] + probs[1] > 0
    tried = np.linspace(0.001, 0.999, 999)
    likelihoods = [np.log(w * probs[0][known] + (1 - w) * probs[1][known]).sum() for w in tried]
    assert weights[0] == pytest.approx(tried[int(np.argmax(likelihoods))], abs=0.002)
    assert fit_weights(probs) == pytest.approx(weights, abs=1e-4)
    assert mixed.evaluate(held_out)["unknown"] <= min(model.evaluate(held_out)["unknown"] for model in models)


def test_a_mixture_goes_through_a_file(tmp_path: Path) -> None:
    models = [trained(zen()[:10], order=3), trained(zen()[10:], order=2)]
    mixed, _ = NGram.mix(models, weights=[3, 1])
    mixed.save(tmp_path / "mixed.arpa")
    assert NGram.load(tmp_path / "mixed.arpa").perplexity(zen()) == pytest.approx(mixed.perplexity(zen()), rel=1e-6)


def test_engines_can_be_mixed_too() -> None:
    text = zen()
    one = [trained(text[:10], order=2, backend=backend) for backend in ("auto", "reference")]
    two = trained(text[10:], order=2, backend="reference")
    values = [NGram.mix([model, two], weights=[1, 1])[0].perplexity(text) for model in one]
    assert values[0] == pytest.approx(values[1], rel=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "Mixing needs either weights or a text to fit them to."),
        ({"weights": [1, 1], "text": ["a"]}, "Mixing needs either weights or a text to fit them to."),
        ({"weights": [1]}, "There are 1 weights for 2 models. Give one for each."),
        ({"weights": [1, -1]}, "weights=[1, -1] are not shares. Give numbers from 0 up, such as 0.7 and 0.3."),
        ({"weights": [0, 0]}, "weights=[0, 0] are not shares. Give numbers from 0 up, such as 0.7 and 0.3."),
        ({"text": []}, "There are no words in the sentences. Give a text with a sentence on each line."),
    ],
)
def test_mistakes(options: dict[str, Any], message: str) -> None:
    model = trained(["a b"], order=2)
    with pytest.raises(UserError) as caught:
        NGram.mix([model, model], **options)
    assert str(caught.value) == message


def test_one_model_is_no_mixture() -> None:
    with pytest.raises(UserError, match=r"^There are 1 models to mix\. Give two or more\.$"):
        NGram.mix([trained(["a b"], order=2)], weights=[1])


def test_a_text_that_no_model_knows() -> None:
    with pytest.raises(UserError) as caught:
        fit_weights([np.zeros(3), np.zeros(3)])
    assert str(caught.value) == "None of the models has a word of the text. Fit the weights on text like theirs."
