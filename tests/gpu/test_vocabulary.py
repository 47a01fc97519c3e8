"""Vocabularies on a GPU: the loss of a linear layer, embeddings and linear layers. Skipped where there is no GPU."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unrolled.kernels.vocabulary import chunked
from unrolled.kernels.vocabulary.scores import linear_cross_entropy
from unrolled.nn.embedding import Embedding
from unrolled.nn.linear import Linear

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")

ERRORS = {torch.bfloat16: 1.6e-2, torch.float16: 2e-3}


def error(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize(("rows", "size", "vocabulary"), [(1, 5, 3), (700, 64, 59), (513, 650, 10_001), (300, 40, 999)])
@pytest.mark.parametrize(("smoothing", "biased"), [(0.0, True), (0.1, True), (0.1, False)])
def test_the_loss_of_a_linear_layer(
    rows: int, size: int, vocabulary: int, smoothing: float, biased: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    x, weight = (torch.randn(n, size, device="cuda", requires_grad=True) for n in (rows, vocabulary))
    bias = torch.randn(vocabulary, device="cuda", requires_grad=True) if biased else None
    targets = torch.randint(vocabulary, (rows,), device="cuda")
    targets[1::3] = chunked.IGNORED
    inputs = [one for one in (x, weight, bias) if one is not None]

    def run() -> tuple[Tensor, ...]:
        with torch.autocast("cuda", dtype):
            loss = linear_cross_entropy(x / size**0.5, weight, bias, targets, smoothing)
        return loss.detach(), *torch.autograd.grad(0.5 * loss, inputs)

    wide: list[Any] = [one.detach().double().requires_grad_() for one in inputs]
    options: dict[str, Any] = {"reduction": "sum", "label_smoothing": smoothing}
    right = F.cross_entropy(F.linear(wide[0] / size**0.5, wide[1], wide[2] if biased else None), targets, **options)
    expected = right.detach(), *torch.autograd.grad(0.5 * right, wide)
    found = run()
    for one, true in zip(found, expected, strict=True):
        assert one.dtype == torch.float32
        assert error(one, true) < ERRORS[dtype]
    assert all(torch.equal(a, b) for a, b in zip(found, run(), strict=True))  # the same in every run


def test_a_large_loss_is_computed_in_chunks() -> None:
    """32,768 rows of 50,000 scores would be 3.3 GB in 16 bits."""
    x = torch.randn(32_768, 64, device="cuda", requires_grad=True)
    weight = torch.randn(50_000, 64, device="cuda", requires_grad=True)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    with torch.autocast("cuda", torch.bfloat16):
        loss = linear_cross_entropy(x, weight, None, torch.randint(50_000, (32_768,), device="cuda"))
    loss.backward()  # type: ignore[no-untyped-call]
    assert torch.cuda.max_memory_allocated() - before < 400e6


@pytest.mark.parametrize(("vocabulary", "width"), [(59, 64), (8000, 256), (60_000, 40), (3, 1000)])
def test_the_gradient_of_an_embedding(vocabulary: int, width: int) -> None:
    torch.manual_seed(0)
    layer = Embedding(vocabulary, width, padding_idx=1, device="cuda")
    ids = (torch.rand(80, 128, device="cuda").pow(3) * vocabulary).long()  # some tokens are far more frequent
    given = torch.randn(80, 128, width, device="cuda")
    found, again = (torch.autograd.grad(layer(ids), layer.weight, given)[0] for _ in range(2))
    exact = torch.ops.aten.embedding_dense_backward(given.double(), ids, vocabulary, 1, False)
    assert torch.equal(found, again)
    assert error(found, exact) < 1e-6


@pytest.mark.parametrize("dtype", ERRORS)
def test_a_linear_layer_under_autocast(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    ours = Linear(96, 40, device="cuda")
    theirs: Any = copy.deepcopy(ours).double()
    x = torch.randn(7, 30, 96, device="cuda", requires_grad=True)
    with torch.autocast("cuda", dtype):
        output = ours(x)
    right = nn.functional.linear(x.double(), theirs.weight, theirs.bias)
    given = torch.randn_like(right)
    found = torch.autograd.grad(output, [x, *ours.parameters()], given.to(dtype), create_graph=True)
    plain = torch.autograd.grad(output, [x, *ours.parameters()], given.to(dtype))
    expected = torch.autograd.grad(right, [x, *theirs.parameters()], given)
    assert error(output, right) < ERRORS[dtype]
    for one, other, true in zip(found, plain, expected, strict=True):
        assert max(error(one, true), error(other, true)) < ERRORS[dtype]
        assert other.dtype == torch.float32
