"""Attention: the equations written out, torch.nn.MultiheadAttention, masks."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.tolerances import assert_close
from unrolled.errors import UserError
from unrolled.nn.attention import SCORES, Attention, MultiHeadAttention

B, T, S, Q, K = 3, 4, 5, 6, 7


def made(kind: str) -> tuple[Attention, Tensor, Tensor, Tensor]:
    """A score in float64, queries, a memory and a mask: all real, some, one."""
    key_size = Q if kind in ("dot", "scaled") else K
    attention = Attention(kind, Q, key_size, size=8).double()
    mask = torch.arange(S) < torch.tensor([[S], [2], [1]])
    query, memory = torch.randn(B, T, Q, dtype=torch.float64), torch.randn(B, S, key_size, dtype=torch.float64)
    return attention, query, memory, mask


def by_hand(attention: Attention, q: Tensor, k: Tensor) -> float:
    """One score of one query and one key, from its formula."""
    p: dict[str, Any] = {name: value.tolist() for name, value in attention.state_dict().items()}
    query, key = q.tolist(), k.tolist()

    def times(matrix: list[list[float]], vector: list[float]) -> list[float]:
        return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]

    if attention.kind == "additive":
        rows = zip(
            p["vector"], times(p["query.weight"], query), times(p["key.weight"], key), p["key.bias"], strict=True
        )
        return float(sum(v * math.tanh(wq + uk + b) for v, wq, uk, b in rows))
    if attention.kind == "general":
        key = times(p["key.weight"], key)
    dot = float(sum(a * b for a, b in zip(query, key, strict=True)))
    return dot / math.sqrt(Q) if attention.kind == "scaled" else dot


@pytest.mark.parametrize("kind", SCORES)
def test_scores_are_their_formulas(kind: str) -> None:
    attention, query, memory, mask = made(kind)
    context, weights = attention(query, attention.project(memory), memory, mask)
    for b in range(B):
        real = int(mask[b].sum())
        for t in range(T):
            powers = [math.exp(by_hand(attention, query[b, t], memory[b, j])) for j in range(real)]
            expected = torch.tensor([p / sum(powers) for p in powers] + [0.0] * (S - real), dtype=torch.float64)
            assert_close(weights[b, t], expected)
            assert_close(context[b, t], sum(expected[j] * memory[b, j] for j in range(real)))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", SCORES)
def test_one_query_is_a_row_of_many(kind: str) -> None:
    attention, query, memory, mask = made(kind)
    keys = attention.project(memory)
    context, weights = attention(query, keys, memory, mask)
    one_context, one_weights = attention(query[:, 2], keys, memory, mask)
    assert_close(one_context, context[:, 2])
    assert_close(one_weights, weights[:, 2])


@pytest.mark.parametrize("kind", SCORES)
def test_nothing_to_look_at_is_zero_and_has_no_nan(kind: str) -> None:
    attention, query, memory, mask = made(kind)
    mask[1] = False
    memory.requires_grad_()
    context, weights = attention(query, attention.project(memory), memory, mask)
    assert weights[1].abs().sum() == 0
    assert context[1].abs().sum() == 0
    assert_close(weights.sum(-1)[[0, 2]], torch.ones(2, T, dtype=torch.float64))
    (context.square().sum() + weights.square().sum()).backward()
    for value in (memory.grad, *(p.grad for p in attention.parameters())):
        assert value is not None
        assert value.isfinite().all()


@pytest.mark.parametrize("kind", SCORES)
def test_padding_values_do_not_matter(kind: str) -> None:
    attention, query, memory, mask = made(kind)

    def gradients(memory: Tensor) -> list[Tensor]:
        memory = memory.clone().requires_grad_()
        # a memory comes from an encoder, whose padding has no gradient of its own
        context, weights = attention(query, attention.project(torch.where(mask[..., None], memory, 0)), memory, mask)
        loss = context.square().sum() + weights.square().sum()
        found = torch.autograd.grad(loss, [memory, *attention.parameters()])
        return [context, weights, *found]

    dirty = torch.where(mask[..., None], memory, float("nan"))
    for clean, other in zip(gradients(memory), gradients(dirty), strict=True):
        assert torch.equal(clean, other)


class TestMultiHead:
    @pytest.mark.parametrize("key_size", [None, 10])
    @pytest.mark.parametrize("bias", [True, False])
    @pytest.mark.parametrize("causal", [True, False])
    def test_equals_torch(self, key_size: int | None, bias: bool, causal: bool) -> None:
        theirs = nn.MultiheadAttention(
            12, 3, bias=bias, kdim=key_size, vdim=key_size, batch_first=True, dtype=torch.float64
        )
        ours = MultiHeadAttention(12, 3, bias=bias, key_size=key_size).double()
        ours.load_state_dict(theirs.state_dict())
        query = torch.randn(B, S if causal else T, 12, dtype=torch.float64, requires_grad=True)
        memory = torch.randn(B, S, key_size or 12, dtype=torch.float64, requires_grad=True)
        mask = torch.arange(S) < torch.tensor([[S], [2], [1]])
        future = torch.ones(S, S, dtype=torch.bool).triu(1) if causal else None
        expected, expected_weights = theirs(
            query, memory, memory, key_padding_mask=~mask, attn_mask=future, average_attn_weights=False
        )
        keys, values = ours.project(memory)
        got = ours(query, keys, values, mask, causal)
        seen, weights = ours.visible(query, keys, values, mask, causal)
        assert_close(got, expected, "output")
        assert_close(seen, expected, "visible output")
        assert_close(weights, expected_weights, "weights")
        leaves: list[Any] = [query, memory]
        right = torch.autograd.grad(expected.square().sum(), [*leaves, *theirs.parameters()])
        for output in (got, seen):
            mine = torch.autograd.grad(output.square().sum(), [*leaves, *ours.parameters()], retain_graph=True)
            named = dict(zip([n for n, _ in ours.named_parameters()], mine[2:], strict=True))
            for name, gradient in zip([n for n, _ in theirs.named_parameters()], right[2:], strict=True):
                assert_close(named[name], gradient, name)
            for a, b in zip(mine[:2], right[:2], strict=True):
                assert_close(a, b)

    def test_same_seed_same_weights_as_torch(self) -> None:
        torch.manual_seed(3)
        theirs = nn.MultiheadAttention(12, 3, batch_first=True)
        torch.manual_seed(3)
        ours = MultiHeadAttention(12, 3)
        expected = theirs.state_dict()
        assert ours.state_dict().keys() == expected.keys()
        for name, value in ours.state_dict().items():
            assert torch.equal(value, expected[name]), name

    def test_a_query_that_may_look_at_nothing(self) -> None:
        attention = MultiHeadAttention(12, 3)
        memory = torch.randn(2, S, 12, requires_grad=True)
        mask = torch.tensor([[True] * S, [False] * S])
        keys, values = attention.project(memory)
        for output in (
            attention(memory, keys, values, mask),
            attention.visible(memory, keys, values, mask)[0],
        ):
            assert_close(output[1], attention.out_proj.bias.expand(S, 12))
            (gradient,) = torch.autograd.grad(output.square().sum(), memory, retain_graph=True)
            assert gradient.isfinite().all()

    def test_causal_with_kept_keys(self) -> None:
        attention = MultiHeadAttention(12, 3).double()
        x = torch.randn(2, 6, 12, dtype=torch.float64)
        keys, values = attention.project(x)
        whole = attention(x, keys, values, causal=True)
        assert_close(attention(x[:, 4:], keys, values, causal=True), whole[:, 4:])
        assert_close(attention(x[:, 3:4], keys[:, :, :4], values[:, :, :4], causal=True), whole[:, 3:4])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Attention("aditive", 3, 4),
            "Unknown attention score 'aditive'. Did you mean 'additive'? Choices: additive, dot, general, scaled.",
        ),
        (
            lambda: Attention("dot", 3, 4),
            "A dot score multiplies query and key: query_size=3, key_size=4. "
            "Use equal sizes, or the score 'general' or 'additive', which take any.",
        ),
        (lambda: Attention("additive", 0, 4), "query_size must be greater than zero, got 0."),
        (lambda: MultiHeadAttention(130, 8), "size=130 is not divisible by num_heads=8. Use 128 or 136."),
        (lambda: MultiHeadAttention(3, 4), "size=3 is not divisible by num_heads=4. Use 4."),
    ],
)
def test_messages(make: Any, message: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        make()
