"""The search gives the same on NumPy's arrays as on torch's tensors: random models, all limits and scorers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.search.toy import Markov
from unrolled.search import (
    Beam,
    DictionaryScorer,
    Lexicon,
    Limits,
    NGram,
    NGramScorer,
    Ranking,
    Sampling,
    TokenStep,
    WordList,
    WordTokens,
    WordWeights,
    beam_search,
    generate,
    sample,
)
from unrolled.search.arrays import NUMPY

TOKENS, END = 7, 6
LETTERS = ["a", "b", "c", "d", " ", "e", "<eos>"]


class NumpyMarkov:
    """The model of `Markov` with arrays; attention is spread by the last token over three places."""

    arrays = NUMPY

    def __init__(self, table: torch.Tensor) -> None:
        self.table = table.log_softmax(-1).numpy()

    def start(self, memory: Any) -> Any:
        return None

    def step(self, tokens: Any, state: Any) -> TokenStep:
        assert isinstance(tokens, np.ndarray)
        previous = np.zeros_like(tokens) if state is None else state
        attention = NUMPY.shares(np.stack([tokens, previous, tokens * 0], axis=1).astype(np.float32))
        return TokenStep(self.table[previous, tokens], tokens, attention)


class TorchMarkov(Markov):
    def start(self, memory: Any) -> Any:
        return None

    def step(self, tokens: torch.Tensor, state: Any) -> TokenStep:
        previous = torch.zeros_like(tokens) if state is None else state
        attention = torch.stack([tokens, previous, tokens * 0], dim=1).float().softmax(-1)
        return TokenStep(self.table[previous, tokens], tokens, attention)


def scorers(kind: str) -> tuple[Any, ...]:
    if kind == "words":
        return (WordList(["ab", "b", "cad", "e"], LETTERS, ends=[END]),)
    lm = NGram.train(["a b", "a b", "b a", "c"], order=2)
    if kind == "ngram":
        return (NGramScorer(lm, [*"abcd", "_", "e", "</s>"], weight=0.5, end=END),)
    lexicon = Lexicon(["ab", "b", "cad", "a"], LETTERS)
    tokens = WordTokens(separators=[4], end=END)
    return (DictionaryScorer(lexicon, lm, tokens, WordWeights(lm_weight=0.7, word_bonus=0.2)),)


CASES: dict[str, tuple[Limits, Beam]] = {
    "plain": (Limits(12, END), Beam(4, n_best=3)),
    "greedy": (Limits(12, END), Beam(1)),
    "ranking": (Limits([9, 12, 7], END, min_tokens=2), Beam(5, 2, Ranking("average"), stop="enough")),
    "coverage": (Limits(10, END), Beam(4, 2, Ranking("gnmt", 0.8, coverage=0.5))),
    "margin": (Limits(12, END, forbidden=[2, 3]), Beam(6, 2, Ranking("none"), margin=1.5)),
    "repeats": (Limits(12, END, no_repeat_ngram=2), Beam(4, 4)),
    "prefixes": (Limits(10, END, prefixes=[[1, 2], [], [5]]), Beam(4, 2)),
    **dict.fromkeys(("words", "ngram", "lexicon"), (Limits(10, END), Beam(4, 2))),
    "places": (Limits(10, END), Beam(5, 2, per_node=1)),
}
SCORED = {"words": "words", "ngram": "ngram", "lexicon": "lexicon", "places": "lexicon"}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(5))
def test_beam_search(case: str, seed: int) -> None:
    limits, beam = CASES[case]
    limits = replace(limits, scorers=scorers(SCORED[case]) if case in SCORED else ())
    table = torch.randn(TOKENS, TOKENS, TOKENS, generator=torch.Generator().manual_seed(seed)) * 2
    options: dict[str, Any] = {"start": 0, "beam": beam, "attention": True, "tree": True}
    mask = np.array([[True, True, False], [True, True, True], [True, False, False]])
    ours = beam_search(NumpyMarkov(table), 3, limits, memory_mask=mask, **options)
    theirs = beam_search(TorchMarkov(table), 3, limits, memory_mask=torch.from_numpy(mask), **options)
    for one, other in zip(ours, theirs, strict=True):
        assert [h.tokens for h in one.hypotheses] == [h.tokens for h in other.hypotheses]
        assert [h.ended for h in one.hypotheses] == [h.ended for h in other.hypotheses]
        for a, b in zip(one.hypotheses, other.hypotheses, strict=True):
            assert (a.score, a.log_prob) == pytest.approx((b.score, b.log_prob), rel=1e-6)
            assert isinstance(a.attention, np.ndarray)
            assert isinstance(b.attention, torch.Tensor)
            np.testing.assert_allclose(a.attention, b.attention.numpy(), rtol=1e-5)
        assert one.tree is not None
        assert other.tree is not None
        found = [(node.parent, node.token, node.fate) for node in one.tree.nodes]
        assert found == [(node.parent, node.token, node.fate) for node in other.tree.nodes]


SAMPLINGS = [
    Sampling(),
    Sampling(temperature=0),
    Sampling(temperature=0.005),
    Sampling(0.7, top_k=3),
    Sampling(1.3, top_p=0.8),
    Sampling(min_p=0.2),
    Sampling(0.9, repetition_penalty=1.5),
]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
@pytest.mark.parametrize("kind", ["", "words", "lexicon"])
def test_sampling(sampling: Sampling, kind: str) -> None:
    prompts = [[0], [1, 2, 4], [4, 4]]
    limits = Limits(15, END, 1, no_repeat_ngram=0 if kind else 3, scorers=scorers(kind) if kind else ())
    for seed in range(4):
        table = torch.randn(TOKENS, TOKENS, TOKENS, generator=torch.Generator().manual_seed(seed))
        ours, theirs = (
            sample(model, prompts, limits, sampling=sampling, seeds=seed)
            for model in (NumpyMarkov(table), TorchMarkov(table))
        )
        assert [(one.tokens, one.stopped_by) for one in ours] == [(one.tokens, one.stopped_by) for one in theirs]
        assert [one.log_prob for one in ours] == pytest.approx([one.log_prob for one in theirs], rel=1e-6)


def test_the_distribution_that_is_sampled_from() -> None:
    log_probs = torch.randn(5, 9).log_softmax(-1)
    log_probs[0, 2:6] = log_probs[0, 1]  # equal ones at the last place of top-k
    seen = torch.rand(5, 9) < 0.3
    for sampling in SAMPLINGS:
        ours = sampling.filtered(log_probs.numpy(), seen.numpy())
        np.testing.assert_allclose(ours, sampling.filtered(log_probs, seen).numpy(), rtol=1e-5, atol=1e-6)


def test_numbers_that_are_none() -> None:
    table = torch.zeros(TOKENS, TOKENS, TOKENS)
    table[0, 0, 3] = torch.nan
    for run in (
        lambda: beam_search(NumpyMarkov(table), 1, Limits(3, END), start=0),
        lambda: list(generate(NumpyMarkov(table), [[0]], Limits(3, END), seeds=1)),
    ):
        with pytest.raises(Exception, match="contain NaN"):
            run()
    with pytest.raises(Exception, match="No token is left to write"):
        beam_search(NumpyMarkov(torch.zeros_like(table)), 1, Limits(3, END, forbidden=range(TOKENS)), start=0)


def test_seeds_of_numpy_decide() -> None:
    model = NumpyMarkov(torch.randn(TOKENS, TOKENS, TOKENS))
    drawn = []
    for _ in range(2):
        np.random.seed(3)
        drawn.append(sample(model, [[0], [1]], Limits(20)))
    assert drawn[0] == drawn[1]
