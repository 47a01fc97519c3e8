"""Rows apart: where answers are computed, a row's numbers do not depend on the rows and the padding beside it.

torch's products, softmax and pointwise functions add up, or round, in an order that depends on the shape of a batch. In
a block of `rows_apart` the functions here use an order that does not: an answer then has the same bits alone and in any
batch. Elsewhere, and where gradients are needed, they are torch's own. Everything is float32 on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

VECTOR = 64  # numbers; a multiple of what any processor's vectors hold
ON_ONE_THREAD = 2**14  # numbers that torch does not share between threads


class RowEngine(Protocol):
    """Products whose rows are apart; `fits` says whether it takes tensors like these."""

    def fits(self, *tensors: Tensor | None) -> bool: ...
    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor: ...
    def product(self, a: Tensor, b: Tensor) -> Tensor: ...
    def attention(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool, *, show: bool = False
    ) -> tuple[Tensor, Tensor | None]: ...


_ENGINE: ContextVar[RowEngine | None] = ContextVar("rows_apart", default=None)


@contextmanager
def rows_apart(engine: RowEngine | None) -> Iterator[None]:
    """A block in which rows are apart; without an engine they are not."""
    before = _ENGINE.get()
    _ENGINE.set(engine)
    try:
        yield
    finally:
        _ENGINE.set(before)


def row_engine() -> RowEngine | None:
    """The engine, where rows are apart."""
    if torch.compiler.is_compiling() or torch.is_grad_enabled():
        return None
    return _ENGINE.get()


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """F.linear.

    >>> linear(torch.ones(1, 2), torch.tensor([[1.0, 2.0]]))
    tensor([[3.]])
    """
    engine = row_engine()
    if engine is None or not engine.fits(x, weight, bias):
        return F.linear(x, weight, bias)
    return engine.linear(x, weight, bias)


def product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b of matrices, or of as many pairs of them: (…, M, K) and (…, K, N).

    >>> product(torch.ones(2, 1, 3), torch.ones(2, 3, 1)).flatten()
    tensor([3., 3.])
    """
    engine = row_engine()
    if engine is None or not engine.fits(a, b):
        return a @ b
    return engine.product(a, b)


def pointwise(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """A function of each number.

    torch computes whole vectors of numbers in another way than the rest at the end of a tensor, or of a thread's part
    of it: here there are only whole vectors, on one thread.
    """
    engine = row_engine()
    if engine is None or not engine.fits(x) or x.numel() == 0:
        return function(x)
    if x.shape[-1] % VECTOR == 0 and x.stride(-1) == 1 and x.numel() <= ON_ONE_THREAD:
        return function(x)
    flat = x.reshape(-1)
    extra = -len(flat) % VECTOR
    parts = torch.split(F.pad(flat, (0, extra)) if extra else flat.contiguous(), ON_ONE_THREAD)
    found = function(parts[0]) if len(parts) == 1 else torch.cat([function(part) for part in parts])
    return found[: len(flat)].view(x.shape)


def softmax(x: Tensor) -> Tensor:
    """Softmax over the last dimension; positions of -inf at its end change nothing."""
    engine = row_engine()
    extra = -x.shape[-1] % VECTOR
    if engine is None or not engine.fits(x) or not extra:
        return x.softmax(dim=-1)
    return F.pad(x, (0, extra), value=-torch.inf).softmax(dim=-1)[..., : x.shape[-1]]


def total(x: Tensor, dim: int) -> Tensor:
    """The sum over a dimension other than the last one."""
    engine = row_engine()
    if engine is None or not engine.fits(x) or not x.shape[dim]:
        return x.sum(dim)
    first, *others = x.unbind(dim)
    found = first.clone()
    for other in others:
        found += other
    return found


def mean(x: Tensor, dim: int) -> Tensor:
    """The mean over a dimension other than the last one."""
    return x.mean(dim) if row_engine() is None else total(x, dim) / x.shape[dim]


def each_alone(network: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """A network of convolutions on x (B, …): each of the batch by itself, as if it were alone."""
    engine = row_engine()
    if engine is None or not engine.fits(x) or len(x) < 2:
        return network(x)
    return torch.cat([network(one) for one in torch.split(x, 1)])
