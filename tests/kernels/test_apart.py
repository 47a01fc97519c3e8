"""Products and attention whose rows are apart: the numbers of float64, and bits that the rows beside do not change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.tolerances import TOLERANCES
from unrolled.cells import apart
from unrolled.cells.apart import RowEngine, rows_apart
from unrolled.kernels.apart.engine import row_engine_of

ENGINE = row_engine_of(torch.device("cpu"))
pytestmark = pytest.mark.skipif(ENGINE is None, reason="the native engine is not built")
CLOSE: dict[str, Any] = {"rtol": TOLERANCES[torch.float32], "atol": TOLERANCES[torch.float32]}


@pytest.fixture
def engine() -> RowEngine:
    assert ENGINE is not None
    return ENGINE


def rows_of(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("depth", "columns"), [(1, 1), (7, 63), (64, 64), (100, 65), (257, 130)])
def test_a_row_of_a_product_is_the_same_beside_any_others(engine: Any, depth: int, columns: int) -> None:
    x, weight, bias = rows_of(1, 500, depth), rows_of(2, columns, depth) / depth**0.5, rows_of(3, columns)
    whole = engine.linear(x, weight, bias)
    expected = (x.double() @ weight.double().t() + bias.double()).float()
    torch.testing.assert_close(whole, expected, **CLOSE)
    for first, count in ((0, 1), (499, 1), (3, 2), (17, 5), (230, 24), (1, 241)):
        assert torch.equal(engine.linear(x[first : first + count], weight, bias), whole[first : first + count])
    spread = torch.stack([x, x], dim=1)[:, 0]  # the same rows, not side by side
    assert torch.equal(engine.linear(spread, weight, bias), whole)


def test_products_of_several_matrices_are_those_of_each(engine: Any) -> None:
    a, b = rows_of(1, 2, 3, 5, 40), rows_of(2, 2, 3, 40, 70)
    found = engine.product(a, b)
    torch.testing.assert_close(found, (a.double() @ b.double()).float(), **CLOSE)
    for i in range(2):
        for j in range(3):
            assert torch.equal(engine.product(a[i : i + 1, j, :2], b[i : i + 1, j])[0], found[i, j, :2])
    padded = torch.cat([b, torch.zeros(2, 3, 9, 70)], 2)
    assert torch.equal(engine.product(torch.cat([a, rows_of(3, 2, 3, 5, 9)], 3), padded), found)
    assert torch.equal(engine.product(a, b[0, 0]), engine.linear(a, b[0, 0].t().contiguous(), None))


@pytest.mark.parametrize("size", [5, 16, 64, 80])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_the_same_with_any_padding(engine: Any, size: int, causal: bool) -> None:
    query, keys, values = rows_of(1, 3, 2, 9, size), rows_of(2, 3, 2, 12, size), rows_of(3, 3, 2, 12, size)
    found, weights = engine.attention(query, keys, values, None, causal, show=True)
    past = torch.arange(12) <= torch.arange(9)[:, None] + 3 if causal else None
    q, k, v = (part.double() for part in (query, keys, values))
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, past)
    torch.testing.assert_close(found, expected.transpose(1, 2).flatten(2).float(), **CLOSE)
    assert weights is not None
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2, 9), **CLOSE)
    assert torch.equal(engine.attention(query[1:2], keys[1:2], values[1:2], None, causal)[0], found[1:2])
    nothing = torch.full((3, 2, 7, size), float("nan"))
    left: list[Any] = [torch.cat([nothing, part], 2) for part in (keys, values)]
    mask = (torch.arange(19) >= 7).expand(3, 19)
    assert torch.equal(engine.attention(query, *left, mask, causal)[0], found)
    if not causal:
        right: list[Any] = [torch.cat([part, nothing], 2) for part in (keys, values)]
        mask = (torch.arange(19) < 12).expand(3, 19)
        assert torch.equal(engine.attention(query, *right, mask, causal)[0], found)
        each = mask[:, None].expand(3, 9, 19)
        assert torch.equal(engine.attention(query, *right, each, causal)[0], found)


def test_a_query_that_sees_nothing_gets_zeros(engine: Any) -> None:
    query, keys = rows_of(1, 1, 1, 2, 4), rows_of(2, 1, 1, 3, 4)
    found, _ = engine.attention(query, keys, keys, torch.zeros(1, 3, dtype=torch.bool), False)
    assert torch.equal(found, torch.zeros(1, 2, 4))


def test_threads_change_no_bit(engine: Any) -> None:
    x, weight, before = rows_of(1, 700, 90), rows_of(2, 300, 90), torch.get_num_threads()
    parts: list[Any] = [part.view(4, 2, 50, 30) for part in rows_of(3, 3, 4 * 2 * 50 * 30)]
    found = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append((engine.linear(x, weight, None), engine.attention(*parts, None, False)[0]))
    finally:
        torch.set_num_threads(before)
    for product, seen in found[1:]:
        assert torch.equal(product, found[0][0])
        assert torch.equal(seen, found[0][1])


@pytest.mark.parametrize("function", [torch.sigmoid, torch.tanh, torch.nn.functional.gelu, torch.exp])
def test_a_function_is_the_same_in_any_place(engine: Any, function: Callable[[Tensor], Tensor]) -> None:
    x = rows_of(1, 40_000)
    with torch.no_grad(), rows_apart(engine):
        whole = apart.pointwise(function, x)
        torch.testing.assert_close(whole, function(x), **CLOSE)
        for first, count in ((0, 1), (39_999, 1), (5, 31), (100, 1000), (2**14 - 3, 70)):
            assert torch.equal(apart.pointwise(function, x[first : first + count]), whole[first : first + count])


def test_elsewhere_and_with_gradients_everything_is_torchs_own(engine: Any) -> None:
    x, weight = rows_of(1, 3, 5), rows_of(2, 4, 5).requires_grad_()
    with rows_apart(engine):
        torch.autograd.backward(apart.linear(x, weight).sum())
    assert weight.grad is not None
    with torch.no_grad():
        assert apart.row_engine() is None
        with rows_apart(engine):
            assert apart.row_engine() is engine
        assert apart.row_engine() is None
