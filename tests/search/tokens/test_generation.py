"""Generation, on models that are exact in any batch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.search.toy import Fixed, Markov, Prefilled
from unrolled.errors import UserError
from unrolled.search import Limits, Sample, Sampling, StopStrings, Token, generate, sample, token_scores

V = 6
END = 5


AnyMarkov = TypeVar("AnyMarkov", bound=Markov)


def second_order(kind: type[AnyMarkov]) -> AnyMarkov:
    return kind(2 * torch.randn(V, V, V, generator=torch.Generator().manual_seed(0)))


def scored(model: Markov, prompt: Sequence[int], tokens: Sequence[int], shift: int = 0) -> float:
    """The log-probability of `tokens` after `prompt`, read from the table one by one."""
    text = [0, *prompt, *tokens]
    start = len(prompt) + 1
    return sum(model.table[text[t - 2], text[t - 1], (text[t] - shift) % V].item() for t in range(start, len(text)))


def test_greedy_follows_the_likeliest_transitions() -> None:
    model = Markov(torch.randn(V, V))
    expected, token = [], 3
    for _ in range(12):
        row = model.table[token].tolist()
        token = row.index(max(row))
        expected.append(token)
    (got,) = sample(model, [[3]], Limits(max_tokens=12), sampling=Sampling(temperature=0))
    assert got.tokens == expected
    assert got.stopped_by == "length"


@pytest.mark.parametrize("graph", ["auto", "steady"])
def test_the_likeliest_in_the_place_of_each_token(graph: Any) -> None:
    """They are those of the plain distribution, and asking for them changes no token."""
    model, prompts = second_order(Markov), [[1, 2], [4]]
    options: dict[str, Any] = {"limits": Limits(8, forbidden=[1]), "sampling": Sampling(0.5, top_k=3), "seeds": 2}
    told = [token for step in generate(model, prompts, top=3, graph=graph, **options) for token in step]
    plain = [token for step in generate(model, prompts, **options) for token in step]
    assert [token._replace(top=()) for token in told] == plain
    for row in (0, 1):
        text = [0, *prompts[row]]
        for token in (one for one in told if one.row == row):
            expected = sorted(enumerate(model.table[text[-2], text[-1]].tolist()), key=lambda one: -one[1])
            assert list(token.top) == expected[:3]
            text.append(token.id)


def test_scores_of_given_tokens() -> None:
    model, rows = second_order(Markov), [[3, 1, 4], [], [2]]
    found = token_scores(model, rows, start=5, top=1)
    assert [[token.id for token in row] for row in found] == rows
    assert [token.row for token in found[0]] == [0, 0, 0]
    for row, tokens in zip(found, rows, strict=True):
        assert sum(token.log_prob for token in row) == pytest.approx(scored(model, [5], tokens), abs=1e-6)
    assert token_scores(model, [], start=0) == []
    ((token,),) = token_scores(model, [[2]], start=5, top=V + 1)
    assert dict(token.top) == pytest.approx(dict(enumerate(model.table[0, 5].tolist())))


prompts_and_seeds = st.lists(
    st.tuples(st.lists(st.integers(0, V - 1), min_size=1, max_size=5), st.integers(0, 2**70), st.integers(0, V - 1)),
    min_size=1,
    max_size=5,
)


@given(
    prompts_and_seeds,
    st.sampled_from([Sampling(), Sampling(0.7, top_k=4, repetition_penalty=1.3), Sampling(0, repetition_penalty=2.0)]),
    st.sampled_from([Markov, Prefilled]),
)
@settings(max_examples=60, deadline=None)
def test_a_row_is_the_same_alone_and_in_any_batch(
    rows: list[tuple[list[int], int, int]], sampling: Sampling, kind: type[Markov]
) -> None:
    model = second_order(kind)
    options: dict[str, Any] = {"limits": Limits(7, END, forbidden=[1]), "sampling": sampling}
    prompts, seeds, shifts = map(list, zip(*rows, strict=True))
    together = sample(model, prompts, seeds=seeds, memory=torch.tensor(shifts), **options)
    for (prompt, seed, shift), got in zip(rows, together, strict=True):
        alone = sample(second_order(Markov), [prompt], seeds=[seed], memory=torch.tensor([shift]), **options)
        assert [got] == alone
        assert 1 not in got.tokens
        assert END not in got.tokens
        ending = [END] if got.stopped_by == "end" else []
        assert got.log_prob == pytest.approx(scored(model, prompt, got.tokens + ending, shift), abs=1e-4)
        assert len(got.tokens) == 7 or got.stopped_by == "end"


def test_prefill_reads_the_prompts_and_changes_nothing_else() -> None:
    plain, fast = second_order(Markov), second_order(Prefilled)
    prompts = [[1, 2, 3, 4], [2], [0, 0]]
    assert sample(plain, prompts, Limits(max_tokens=5), seeds=3) == sample(fast, prompts, Limits(max_tokens=5), seeds=3)
    assert fast.prefills == 1
    assert fast.batches == [3, 3, 3, 3]
    assert plain.batches == [3, 3, 3, 3, 3, 2, 1, 1]


def test_rows_that_ended_are_not_computed_any_more() -> None:
    # Token t is followed by t + 1 for certain; the prompts are 3, 1 and 2 steps before the end.
    model = Markov(torch.eye(V).roll(1, 1) * 1000)
    steps = list(generate(model, [[2], [4], [3]], Limits(max_tokens=9, end=END)))
    assert steps == [
        [Token(0, 3, 0.0), Token(1, 5, 0.0, "end"), Token(2, 4, 0.0)],
        [Token(0, 4, 0.0), Token(2, 5, 0.0, "end")],
        [Token(0, 5, 0.0, "end")],
    ]
    assert model.batches == [3, 2, 1]


def test_tokens_come_as_soon_as_they_are_chosen() -> None:
    model = second_order(Markov)
    stream = generate(model, [[0]], Limits(max_tokens=3), seeds=1)
    assert model.batches == []
    for steps in (1, 2, 3):
        assert len(next(stream)) == 1
        assert len(model.batches) == steps
        assert torch.is_grad_enabled()
    assert list(stream) == []


def test_the_stop_condition_sees_its_row_and_all_it_wrote() -> None:
    model = Markov(torch.eye(V).roll(1, 1) * 1000)
    calls = []

    def stop(row: int, tokens: Sequence[int]) -> bool:
        calls.append((row, list(tokens)))
        return row == 1 and len(tokens) == 2

    got = sample(model, [[0], [1]], Limits(max_tokens=3), stop=stop)
    assert got == [Sample([1, 2, 3], 0.0, "length"), Sample([2, 3], 0.0, "stop")]
    assert calls == [(0, [1]), (1, [2]), (0, [1, 2]), (1, [2, 3]), (0, [1, 2, 3])]


def test_stop_strings_end_rows_of_a_batch() -> None:
    # The tokens are pieces of text, and "not" lies across two of them.
    pieces = ["I do", " n", "ot", " k", "now", "."]
    model = Markov(torch.eye(V).roll(1, 1) * 1000)
    stops = [StopStrings(["not"]) for _ in range(2)]
    shown = ["", ""]

    def stop(row: int, tokens: Sequence[int]) -> bool:
        text, stopped = stops[row].feed(pieces[tokens[-1]])
        shown[row] += text
        return stopped

    got = sample(model, [[5], [2]], Limits(max_tokens=5), stop=stop)
    assert [(row.tokens, row.stopped_by) for row in got] == [([0, 1, 2], "stop"), ([3, 4, 5, 0, 1], "length")]
    assert shown == ["I do ", " know.I do "]
    assert [stop.finish() for stop in stops] == ["", "n"]


def test_seeds_reproduce_and_differ() -> None:
    model, prompts = second_order(Markov), [[0], [0], [0]]

    def tokens(seeds: int | list[int] | None) -> list[list[int]]:
        return [row.tokens for row in sample(model, prompts, Limits(max_tokens=30), seeds=seeds)]

    assert tokens(7) == tokens([7, 8, 9])
    assert tokens(7) != tokens(8)
    assert len({tuple(row) for row in tokens(7)}) == 3
    assert tokens([4, 4, 4])[0] == tokens([4, 4, 4])[2]
    torch.manual_seed(1)
    first = tokens(None)
    assert tokens(None) != first
    torch.manual_seed(1)
    assert tokens(None) == first


def test_rows_draw_from_the_model_s_distribution() -> None:
    # The pairs that two steps can write, counted against the product of their probabilities.
    model, rows = second_order(Markov), 20_000
    got = sample(model, [[2, 3]] * rows, Limits(max_tokens=2), seeds=11)
    counts = torch.zeros(V, V, dtype=torch.float64)
    for row in got:
        counts[row.tokens[0], row.tokens[1]] += 1
    first = model.table[2, 3].double().exp()
    second = model.table[3].double().exp()  # (V, V): after 3, and then the first token
    expected = first[:, None] * second * rows
    likely = expected > 5
    chi_square = ((counts - expected) ** 2 / expected)[likely].sum().item()
    degrees = int(likely.sum())
    assert chi_square < degrees + 5 * math.sqrt(2 * degrees)


def test_the_penalty_counts_prompt_and_output() -> None:
    # All tokens are alike, so the strongest penalty leaves those not yet seen, the lowest first.
    model = Markov(torch.zeros(V, V))
    greedy = Sampling(temperature=0, repetition_penalty=100.0)
    got = sample(model, [[0, 2], [4]], Limits(max_tokens=4), sampling=greedy)
    assert [row.tokens for row in got] == [[1, 3, 4, 5], [0, 1, 2, 3]]


def test_no_end_comes_too_soon() -> None:
    model = Markov(torch.eye(V)[END].expand(V, V) * 3)  # mostly the end, whatever was read
    got = sample(model, [[0], [0, 1]] * 20, Limits(max_tokens=9, end=END, min_tokens=4), seeds=1)
    assert {len(row.tokens) for row in got} >= {4, 5}
    assert all(len(row.tokens) >= 4 and END not in row.tokens for row in got)


def test_no_ngram_comes_twice_and_the_prompt_counts() -> None:
    model = Markov(torch.eye(V).roll(1, 1) * 9)  # round and round
    for prompt in ([0], [4, 5, 0, 1]):
        (got,) = sample(model, [prompt], Limits(max_tokens=20, no_repeat_ngram=2), seeds=1)
        written = prompt + got.tokens
        pairs = list(itertools.pairwise(written))
        assert len(set(pairs)) == len(pairs)


def test_no_prompts_give_nothing() -> None:
    assert sample(second_order(Markov), [], Limits(max_tokens=3)) == []


def test_weights_get_no_gradient() -> None:
    table = torch.randn(V, V, requires_grad=True)
    assert len(sample(Markov(table), [[0]], Limits(max_tokens=3))[0].tokens) == 3


@pytest.mark.parametrize(
    ("prompts", "options", "message"),
    [
        ([[0]], {"max_tokens": 0}, "max_tokens=0 is not a whole number from 1 up. Use a length in tokens."),
        ([[0]], {"max_tokens": 2.0}, "max_tokens=2.0 is not a whole number from 1 up. Use a length in tokens."),
        ([[0], []], {}, "prompts[1] is empty: the model has nothing to continue. Begin it with a start token."),
        (["abc"], {}, "prompts[0] is the text 'abc', expected tokens. Encode it first."),
        ([3, 4], {}, "prompts[0] is 3, expected a sequence of tokens. Put a single prompt into a list."),
        ([[1.5]], {}, "prompts[0] holds 1.5, expected whole numbers. Encode the text first."),
        ([[0]], {"seeds": [1, 2]}, "2 seeds were given for 1 prompts. Give one for each, or one number."),
        ([[0]], {"seeds": -1}, "seed -1 is not a whole number from 0 up. Use one such as 1."),
        ([[0]], {"min_tokens": -1}, "min_tokens=-1 is not a whole number from 0 up. Use 0 to switch it off."),
        (
            [[0]],
            {"no_repeat_ngram": "3"},
            "no_repeat_ngram='3' is not a whole number from 0 up. Use 0 to switch it off.",
        ),
        ([[0]], {"seeds": [0.5]}, "seed 0.5 is not a whole number from 0 up. Use one such as 1."),
    ],
)
def test_bad_arguments_are_refused_at_once(prompts: Any, options: dict[str, Any], message: str) -> None:
    seeds = options.pop("seeds", None)
    with pytest.raises(UserError) as error:
        generate(second_order(Markov), prompts, Limits(**({"max_tokens": 3} | options)), seeds=seeds)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("prompts", "options", "message"),
    [
        ([[0], [0, 9]], {}, "prompts[1] holds token 9, but the model knows 6 tokens. Use tokens from 0 to 5."),
        ([[0]], {"forbidden": [6]}, "forbidden holds token 6, but the model knows 6 tokens. Use tokens from 0 to 5."),
        (
            [[0]],
            {"forbidden": range(6)},
            "No token is left to choose for token 1 after prompts[0]: all have probability 0 or are forbidden. "
            "Forbid fewer tokens.",
        ),
    ],
)
def test_tokens_outside_the_vocabulary_are_refused(prompts: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        sample(second_order(Markov), prompts, Limits(3, **options))
    assert str(error.value) == message


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_model_that_gives_nan_is_refused(temperature: float) -> None:
    model = Fixed(torch.tensor([[0.0, 0.0], [0.0, math.nan]]))
    with pytest.raises(UserError) as error:
        sample(model, [[0], [1]], Limits(max_tokens=3), sampling=Sampling(temperature=temperature))
    assert str(error.value) == (
        "The model's log-probabilities for token 1 after prompts[1] contain NaN. "
        "Its weights may not be finite: use a checkpoint from before the loss became NaN."
    )


@pytest.mark.parametrize("shape", [(6,), (1, 6), (2, 3, 6)])
def test_a_model_that_gives_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError) as error:
        sample(Fixed(torch.zeros(shape)), [[0], [1]], Limits(max_tokens=3))
    assert str(error.value) == (
        f"The model's step gave log_probs of shape {shape}, expected (2, V). "
        "Return one row for each row of the tokens; a memory needs a row for each prompt."
    )
