"""Sampling in steps of fixed shapes against `generate` and `sample` with a host: the same tokens and numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from unrolled.errors import UserError
from unrolled.search import Limits, Sampling, TokenStep, generate, sample
from unrolled.search.tokens.steady import GraphCache

V = 7


class Prefilled:
    """The next token depends on the last two; prompts are read in one call."""

    device = torch.device("cpu")

    def __init__(self, table: Tensor) -> None:
        self.table = table.log_softmax(-1)  # (V, V, V)
        self.graphs = GraphCache()

    def start(self, memory: Any) -> Any:
        return memory

    def steady(self, memory: Any, rows: int, width: int, steps: int) -> tuple[Prefilled, Any]:
        return self, memory

    def step(self, tokens: Tensor, state: Any) -> TokenStep:
        return TokenStep(self.table[state["previous"], tokens], {"previous": tokens})

    def prefill(self, tokens: Tensor, lengths: Tensor, state: Any) -> TokenStep:
        rows = torch.arange(len(tokens))
        before = torch.where(lengths > 1, tokens[rows, (lengths - 2).clamp(min=0)], 0)
        return self.step(tokens[rows, lengths - 1], {"previous": before})


def a_model() -> Prefilled:
    return Prefilled(2 * torch.randn(V, V, V))


SAMPLINGS = [
    Sampling(),
    Sampling(temperature=0),
    Sampling(0.7, 3),
    Sampling(1.3, 0, 0.8),
    Sampling(min_p=0.2),
    Sampling(repetition_penalty=1.5),
    Sampling(0.5, 4, 0.9, 0.1, 1.2),
]


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_equal_to_sampling_with_a_host(data: st.DataObject) -> None:
    draw = data.draw
    torch.manual_seed(draw(st.integers(0, 2**31), label="seed"))
    model, rows = a_model(), draw(st.integers(1, 9), label="rows")
    prompts = [draw(st.lists(st.integers(0, V - 1), min_size=1, max_size=4)) for _ in range(rows)]
    limits = Limits(
        [draw(st.integers(1, 70), label="most") for _ in range(rows)],
        draw(st.sampled_from([None, 2]), label="end"),
        draw(st.integers(0, 5), label="min_tokens"),
        draw(st.sampled_from([(), (1, 4)]), label="forbidden"),
    )
    sampling = draw(st.sampled_from(SAMPLINGS), label="sampling")
    arguments: dict[str, Any] = {"sampling": sampling, "seeds": 3}
    expected, found = (sample(model, prompts, limits, graph=graph, **arguments) for graph in ("off", "steady"))
    assert found == expected
    if max(limits.lengths(rows)) > 1 and draw(st.booleans(), label="stop"):
        arguments["stop"] = lambda row, tokens: len(tokens) > 3 and tokens[-2:] == tokens[-4:-2]
    steps = [list(generate(model, prompts, limits, graph=graph, **arguments)) for graph in ("off", "steady")]
    by_row = [[[t[1:] for step in some for t in step if t.row == row] for row in range(rows)] for some in steps]
    assert by_row[0] == by_row[1]
    assert [len(step) for step in steps[0]] == [len(step) for step in steps[1]]


def test_smaller_batches_go_on() -> None:
    torch.manual_seed(0)
    model, rows = a_model(), 20
    limits = Limits([4 * row + 1 for row in range(rows)])
    expected, found = (sample(model, [[1]] * rows, limits, seeds=1, graph=graph) for graph in ("off", "steady"))
    assert found == expected
    assert len(model.graphs) > 1  # batches of several sizes


def test_buffers_are_kept_and_given_back() -> None:
    model = a_model()
    for seed in range(3):
        assert sample(model, [[1]], Limits(20), seeds=seed, graph="steady") == sample(
            model, [[1]], Limits(20), seeds=seed, graph="off"
        )
    assert len(model.graphs) == 1
    steps = generate(model, [[1]], Limits(20), seeds=0, graph="steady")
    next(steps)
    next(steps)
    assert len(model.graphs) == 0  # in use
    steps.close()  # type: ignore[attr-defined]  # a generator
    assert len(model.graphs) == 1


def test_two_streams_at_once_do_not_mix() -> None:
    model = a_model()
    alone = [sample(model, [[1]], Limits(30), seeds=seed, graph="off")[0].tokens for seed in (1, 2)]
    streams = [generate(model, [[1]], Limits(30), seeds=seed, graph="steady") for seed in (1, 2)]
    mixed = [(a[0].id, b[0].id) for a, b in zip(*streams, strict=True)]
    assert [list(tokens) for tokens in zip(*mixed, strict=True)] == alone


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (math.nan, r"The model's log-probabilities for token 3 after prompts\[1\] contain NaN"),
        (-math.inf, r"No token is left to choose for token 3 after prompts\[1\]: all have probability 0"),
    ],
)
def test_errors_name_the_token_and_the_prompt(value: float, message: str) -> None:
    model = a_model()
    model.table = torch.full((V, V, V), -math.inf)
    for token in range(V - 1):
        model.table[:, token, token + 1] = 0.0  # counts
    model.table[:, V - 1] = value
    for graph in ("off", "steady"):
        with pytest.raises(UserError, match=message):
            sample(model, [[0], [V - 3]], Limits(6), graph=graph)
        with pytest.raises(UserError, match=message):
            list(generate(model, [[0], [V - 3]], Limits(6), graph=graph))
