"""Beam search in steps of fixed shapes against `beam_search`, bit for bit: on tables, ties too, and on networks."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from unrolled.errors import UserError
from unrolled.search import Beam, BeamResult, Limits, Ranking, Scorer, Shared, TokenStep, beam_search
from unrolled.search.tokens.steady import GraphCache, NarrowWeights
from unrolled.search.tokens.steady_beam import why_not_steady

START = 0


class Table:
    """The next token depends on the last two and on a number of each input, which is shared by its hypotheses."""

    device = torch.device("cpu")

    def __init__(self, table: Tensor, look: Tensor | None = None, *, normalised: bool = True) -> None:
        self.table = table.log_softmax(-1) if normalised else table  # (V, V, V)
        self.look, self.normalised = look, normalised  # (V, S)
        self.graphs = GraphCache()

    def start(self, memory: Any) -> Any:
        return {"previous": torch.zeros_like(memory), "memory": Shared(memory)}

    def steady(self, memory: Any, rows: int, width: int, steps: int) -> tuple[Table, Any]:
        return self, self.start(memory)

    def step(self, tokens: Tensor, state: Any) -> TokenStep:
        memory = state["memory"].value
        roll = memory.repeat_interleave(len(tokens) // len(memory))
        scores = self.table[state["previous"], tokens]  # (B, V)
        places = (torch.arange(scores.shape[-1]) - roll[:, None]) % scores.shape[-1]
        looked = None if self.look is None else self.look[tokens]
        new = {"previous": tokens, "memory": state["memory"]}
        return TokenStep(scores.gather(-1, places), new, looked, self.normalised)


def both(model: Any, rows: int, limits: Limits, **options: Any) -> tuple[list[BeamResult], list[BeamResult]]:
    """The results of the search with host and of that of fixed shapes."""
    one, other = (beam_search(model, rows, limits, start=START, graph=graph, **options) for graph in ("off", "steady"))
    return one, other


def assert_same(one: list[BeamResult], other: list[BeamResult]) -> None:
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert [(h.tokens, h.log_prob, h.score, h.ended) for h in a.hypotheses] == [
            (h.tokens, h.log_prob, h.score, h.ended) for h in b.hypotheses
        ]
        for x, y in zip(a.hypotheses, b.hypotheses, strict=True):
            assert (x.attention is None) == (y.attention is None)
            if x.attention is not None and y.attention is not None:
                assert torch.equal(x.attention, y.attention)


def result_or_error(*arguments: Any, **options: Any) -> list[BeamResult] | str:
    try:
        return beam_search(*arguments, **options)
    except UserError as error:
        return str(error)


RANKINGS = [Ranking("none"), Ranking("average"), Ranking("gnmt", 0.6), Ranking("gnmt", 1.0)]


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_equal_to_the_search_with_a_host(data: st.DataObject) -> None:
    draw = data.draw
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31), label="seed"))
    vocabulary = draw(st.integers(2, 9), label="vocabulary")
    table = 2 * torch.randn(vocabulary, vocabulary, vocabulary, generator=generator)
    if draw(st.booleans(), label="ties"):
        table = table.round()
    rows = draw(st.integers(1, 5), label="rows")
    end = draw(st.integers(0, vocabulary - 1), label="end")
    table[..., end] += draw(st.sampled_from([0.0, -2.0, 2.0]), label="likeliness of the end")
    size = draw(st.integers(1, 5), label="size")
    beam = Beam(
        size,
        draw(st.integers(1, size), label="n_best"),
        draw(st.sampled_from(RANKINGS), label="ranking"),
        draw(st.sampled_from(["safe", "enough"]), label="stop"),
        draw(st.sampled_from([None, 0.5, 3.0]), label="margin"),
    )
    others = [token for token in range(vocabulary) if token != end]
    prefixes = [draw(st.lists(st.sampled_from(range(vocabulary)), max_size=3)) for _ in range(rows)]
    limits = Limits(
        [draw(st.integers(1, 12), label="length") for _ in range(rows)],
        end,
        draw(st.integers(0, 3), label="min_tokens"),
        others[:1] if draw(st.booleans(), label="forbid") and len(others) > 1 else (),
        prefixes if draw(st.booleans(), label="prefixes") else None,
    )
    model = Table(table, normalised=draw(st.booleans(), label="normalised"))
    memory = torch.randint(vocabulary, (rows,), generator=generator)
    found = [
        result_or_error(model, rows, limits, start=START, beam=beam, memory=memory, graph=graph)
        for graph in ("off", "steady")
    ]
    if isinstance(found[0], str) or isinstance(found[1], str):
        assert found[0] == found[1]
    else:
        assert_same(found[0], found[1])


COVERED = [Ranking("gnmt", 0.6, 0.5), Ranking("none", coverage=2.0)]


@pytest.mark.parametrize("ranking", COVERED)
@pytest.mark.parametrize("seed", range(8))
def test_attention_is_kept_and_covers(ranking: Ranking, seed: int) -> None:
    torch.manual_seed(seed)
    model = Table(torch.randn(6, 6, 6), torch.randn(6, 3).softmax(-1))
    limits, mask = Limits([4, 9, 12], 5), torch.tensor([[True, True, False]] * 2 + [[True] * 3])
    assert_same(
        *both(
            model,
            3,
            limits,
            memory=torch.arange(3),
            memory_mask=mask,
            beam=Beam(3, 2, ranking),
            attention=True,
        )
    )
    assert len(model.graphs) == 1


def test_a_search_is_made_once_for_its_shapes() -> None:
    model = Table(torch.randn(6, 6, 6))
    for rows in (5, 8, 6):
        both(model, rows, Limits(30, 5), memory=torch.zeros(rows, dtype=torch.int64))
    assert len(model.graphs) == 1
    both(model, 9, Limits(30, 5), memory=torch.zeros(9, dtype=torch.int64))
    assert len(model.graphs) == 2


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (math.nan, "The model's log-probabilities for token 2 of row 1 contain NaN"),
        (-math.inf, "No token is left to write for token 2 of row 1: all have prob"),
    ],
)
def test_errors_name_the_token_and_the_row(value: float, message: str) -> None:
    table = torch.full((4, 4, 4), -math.inf)
    table[..., 2] = 0.0  # 2 again and again
    table[0, 2] = value
    model = Table(torch.zeros(4, 4, 4))
    model.table = table
    rolled = torch.tensor([1, 0])  # row 0 writes 3, 3, …
    for graph in ("off", "steady"):
        with pytest.raises(UserError, match=message):
            beam_search(model, 2, Limits(4, 1), start=START, memory=rolled, beam=Beam(1), graph=graph)


def test_no_attention_to_keep() -> None:
    model = Table(torch.randn(4, 4, 4))
    for options, what in (({"attention": True}, "attention"), ({"beam": Beam(2, ranking=COVERED[0])}, "coverage")):
        with pytest.raises(UserError, match=f"This model has no attention, so there is no {what}"):
            beam_search(
                model, 1, Limits(4, 1), start=START, memory=torch.zeros(1, dtype=torch.int64), graph="steady", **options
            )


def test_tokens_that_the_model_does_not_know() -> None:
    model, memory = Table(torch.randn(4, 4, 4)), torch.zeros(1, dtype=torch.int64)
    for limits in (Limits(4, 7), Limits(4, 1, forbidden=[9]), Limits(4, 1, prefixes=[[5]])):
        with pytest.raises(UserError, match="but the model knows 4 tokens"):
            beam_search(model, 1, limits, start=START, memory=memory, graph="steady")


def test_searches_that_need_the_host() -> None:
    limits = Limits(4, 1)
    assert why_not_steady(Beam(), limits, tree=False) is None
    assert why_not_steady(Beam(), limits, tree=True) is not None
    assert why_not_steady(Beam(per_node=2), limits, tree=False) is not None
    assert why_not_steady(Beam(), Limits(4, 1, no_repeat_ngram=2), tree=False) is not None
    assert why_not_steady(Beam(), Limits(4, 1, scorers=[Scorer()]), tree=False) is not None


def test_copies_of_weights_are_made_once_and_brought_up_to_date() -> None:
    layer = torch.nn.Linear(4, 3)
    x = torch.randn(2, 4)
    copies = NarrowWeights([weight.data_ptr() for weight in layer.parameters()])
    seen = []
    with torch.no_grad():
        for _ in range(2):
            with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
                plain = layer(x)
                with _Conversions() as conversions, copies:  # type: ignore[no-untyped-call]  # torch's
                    assert torch.equal(layer(x), plain)
                    seen.append(conversions.count)
            for weight in layer.parameters():
                weight.mul_(-2)
            copies.refresh()
    assert seen == [3, 1]  # weight, bias and input; then the input alone


class _Conversions(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten._to_copy.default
        return func(*args, **(kwargs or {}))


def test_the_host_works_meanwhile() -> None:
    model, calls = Table(torch.randn(4, 4, 4)), []
    options: dict[str, Any] = {"start": START, "memory": torch.arange(2), "meanwhile": lambda: calls.append(1)}
    one, other = (
        beam_search(model, 2, Limits(9, 3, min_tokens=8), graph=graph, **options) for graph in ("off", "steady")
    )
    assert_same(one, other)
    assert calls == [1]
