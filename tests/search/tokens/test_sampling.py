"""The distribution sampled from, against its definitions in plain Python."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.tolerances import assert_close
from unrolled.errors import UserError
from unrolled.search import Sampling
from unrolled.search.tokens.sampling import choose, drawn


def defined(log_probs: list[float], seen: list[bool], sampling: Sampling) -> list[float]:
    """The probabilities after all filters, one row, from the definitions: sorted lists and sums."""
    scores = list(log_probs)
    for token, was_seen in enumerate(seen):
        if was_seen:
            divided = scores[token] > 0
            penalty = sampling.repetition_penalty
            scores[token] = scores[token] / penalty if divided else scores[token] * penalty
    highest = max(scores)
    likeliest = scores.index(highest)
    if sampling.temperature == 0:
        return [1.0 if token == likeliest else 0.0 for token in range(len(scores))]
    weights = [math.exp((score - highest) / sampling.temperature) for score in scores]
    order = sorted(range(len(weights)), key=lambda token: (-weights[token], token))
    if sampling.top_k:
        order = order[: sampling.top_k]
    whole = sum(weights[token] for token in order)
    kept: list[int] = []
    for token in order:
        if sampling.top_p < 1 and sum(weights[t] for t in kept) / whole >= sampling.top_p:
            break
        kept.append(token)
    kept = [token for token in kept if weights[token] >= sampling.min_p * weights[likeliest]]
    whole = sum(weights[token] for token in kept)
    return [weights[token] / whole if token in kept else 0.0 for token in range(len(weights))]


def distributions(batch: int, vocabulary: int, spread: float = 2.0) -> Tensor:
    return (spread * torch.randn(batch, vocabulary, dtype=torch.float64)).log_softmax(-1)


SETTINGS = [
    Sampling(),
    Sampling(temperature=0),
    Sampling(temperature=0.3),
    Sampling(temperature=5.0),
    Sampling(top_k=1),
    Sampling(top_k=7),
    Sampling(top_k=1000),
    Sampling(top_p=1e-300),
    Sampling(top_p=0.5),
    Sampling(top_p=0.95),
    Sampling(min_p=0.1),
    Sampling(min_p=1.0),
    Sampling(repetition_penalty=1.7),
    Sampling(repetition_penalty=0.5),
    Sampling(temperature=0, repetition_penalty=3.0),
    Sampling(temperature=0.7, top_k=9, top_p=0.8, min_p=0.02, repetition_penalty=1.2),
]


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
@pytest.mark.parametrize("vocabulary", [1, 2, 30])
def test_filtering_equals_the_definition(sampling: Sampling, vocabulary: int) -> None:
    log_probs = distributions(20, vocabulary)
    seen = torch.rand(20, vocabulary) < 0.3
    expected = [
        defined(row, row_seen, sampling) for row, row_seen in zip(log_probs.tolist(), seen.tolist(), strict=True)
    ]
    got = sampling.filtered(log_probs, seen)
    assert_close(got.exp(), torch.tensor(expected, dtype=torch.float64))
    assert torch.equal(got.isneginf(), torch.tensor(expected) == 0)


@given(
    weights=st.lists(st.integers(0, 4), min_size=1, max_size=8).filter(any),
    top_k=st.integers(0, 9),
    top_p=st.sampled_from([0.1, 0.33, 0.71, 1.0]),
    min_p=st.sampled_from([0.0, 0.3, 0.6, 1.0]),
    temperature=st.sampled_from([0.0, 0.5, 1.0]),
)
@example(weights=[1, 2, 1, 1], top_k=2, top_p=1.0, min_p=0.0, temperature=1.0)
@example(weights=[1, 2, 2, 2], top_k=3, top_p=0.5, min_p=0.0, temperature=1.0)
@settings(max_examples=300, deadline=None)
def test_equal_probabilities_are_taken_in_the_order_of_their_tokens(
    weights: list[int], top_k: int, top_p: float, min_p: float, temperature: float
) -> None:
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    log_probs = (torch.tensor([weights], dtype=torch.float64) / sum(weights)).log()
    got = sampling.filtered(log_probs).exp()[0]
    assert_close(got, torch.tensor(defined(log_probs[0].tolist(), [], sampling), dtype=torch.float64))
    assert got.sum().item() == pytest.approx(1.0)


def test_top_p_keeps_no_more_than_it_needs() -> None:
    got = Sampling(top_p=0.5).filtered(torch.full((1, 4), 0.25).log()).exp()
    assert got.tolist() == [[0.5, 0.5, 0.0, 0.0]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    log_probs = distributions(4, 50).to(dtype)
    sampling = Sampling(temperature=0.7, top_p=0.9)
    got = sampling.filtered(log_probs)
    assert got.dtype == torch.float32
    assert torch.equal(got, sampling.filtered(log_probs.float()))


def test_the_repetition_penalty_by_hand() -> None:
    # 0.2² = 0.04 and 0.3² = 0.09 beside an untouched 0.5, then divided by their sum 0.63.
    log_probs = torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64).log()
    seen = torch.tensor([[True, False, True]])
    got = Sampling(repetition_penalty=2.0).filtered(log_probs, seen).exp()
    assert_close(got, torch.tensor([[0.04, 0.5, 0.09]], dtype=torch.float64) / 0.63)


def test_a_positive_logit_is_divided_by_the_penalty() -> None:
    logits = torch.tensor([[2.0, -2.0, 2.0, -2.0]])
    seen = torch.tensor([[True, True, False, False]])
    got = Sampling(repetition_penalty=4.0).filtered(logits, seen)
    assert_close(got, torch.tensor([[0.5, -8.0, 2.0, -2.0]]).log_softmax(-1))


def test_temperature_goes_from_greedy_to_uniform() -> None:
    log_probs = distributions(10, 200, spread=0.1).float()
    greedy = Sampling(temperature=0).filtered(log_probs)
    assert torch.equal(greedy.exp().argmax(-1), log_probs.argmax(-1))
    for temperature in (1e-320, 1e-40, 1e-30, 1e-6):
        assert_close(Sampling(temperature=temperature).filtered(log_probs).exp(), greedy.exp())
    assert_close(Sampling(temperature=1e6).filtered(log_probs).exp(), torch.full((10, 200), 1 / 200))


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.6, top_k=12, top_p=0.9)], ids=str)
def test_frequencies_match_the_distribution(sampling: Sampling) -> None:
    draws = 200_000
    log_probs = distributions(1, 20, spread=1.0)
    tokens = choose(sampling, log_probs.expand(draws, -1), None, torch.rand(draws, dtype=torch.float64).tolist())
    counts = torch.bincount(torch.tensor(tokens), minlength=20).double()
    expected = sampling.filtered(log_probs)[0].exp() * draws
    possible = expected > 0
    assert counts[~possible].sum() == 0
    chi_square = ((counts - expected) ** 2 / expected)[possible].sum().item()
    degrees = int(possible.sum()) - 1
    # Its mean is the degrees of freedom and its variance twice that.
    assert chi_square < degrees + 5 * math.sqrt(2 * degrees)


def test_excluded_tokens_are_not_drawn_at_either_end() -> None:
    log_probs = torch.tensor([[0.0, 0.5, 0.0, 0.5, 0.0]]).log().expand(4, -1)
    uniform = [0.0, 0.5 - 2**-30, 0.5, 1 - 2**-53]
    assert choose(Sampling(), log_probs, None, uniform) == [1, 1, 3, 3]


def test_both_ways_of_drawing_agree() -> None:
    log_probs = distributions(500, 40)
    uniform = torch.rand(500, dtype=torch.float64)
    for sampling in (Sampling(top_k=10), Sampling(temperature=0)):
        expected = choose(sampling, log_probs, None, uniform.tolist())
        assert drawn(sampling, log_probs, None, uniform).tolist() == expected
        assert drawn(sampling, torch.tensor([[math.nan, math.nan]]), None, uniform[:1]).tolist() == [-1]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0), Sampling(0.5, 2, 0.9, 0.1)], ids=str)
def test_a_row_without_a_choice_is_marked(sampling: Sampling) -> None:
    nan, inf = math.nan, math.inf
    log_probs = torch.tensor([[-1.0, -1.0, -1.0], [-inf, -inf, -inf], [-1.0, nan, -1.0], [-1.0, -1.0, nan]])
    assert choose(sampling, log_probs, None, [0.1] * 4) == [0, -1, -1, -1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(
            (
                {"temperature": value},
                f"temperature={value!r} is not a number from 0 to 1e6. "
                "Use 0 for the likeliest token, 1 for the model's own distribution.",
            )
            for value in (-0.1, math.nan, math.inf, "0.8", True)
        ),
        *(
            (
                {"top_k": value},
                f"top_k={value!r} is not a whole number from 0 up. "
                "Use 0 to switch it off, or how many of the likeliest tokens stay, such as 40.",
            )
            for value in (-1, 2.5, "5", True)
        ),
        *(
            (
                {"top_p": value},
                f"top_p={value!r} is not a number above 0 and at most 1. "
                "Use 1 to switch it off, or the share of probability that stays, such as 0.9.",
            )
            for value in (0, 1.1, math.nan, None)
        ),
        *(
            (
                {"min_p": value},
                f"min_p={value!r} is not a number from 0 to 1. "
                "Use 0 to switch it off, or a fraction of the highest probability, such as 0.05.",
            )
            for value in (-0.1, 2, math.nan)
        ),
        *(
            (
                {"repetition_penalty": value},
                f"repetition_penalty={value!r} is not a number from 0.01 to 100. "
                "Use 1 to switch it off, or more to make repetition rarer, such as 1.2.",
            )
            for value in (0, -1.2, 101, math.nan)
        ),
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        Sampling(**options)
    assert str(error.value) == message
