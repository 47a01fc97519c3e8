"""Scores over a vocabulary on the native engine (native/vocabulary/vocabulary.h). Everything is on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

import unrolled.kernels._native as _native
from unrolled.cells.apart import row_engine
from unrolled.errors import UserError
from unrolled.kernels.native_buffers import Allocate, Lease, address, empty
from unrolled.kernels.native_core import NARROW
from unrolled.kernels.native_operator import Kernel, NativeOperator
from unrolled.kernels.vocabulary import reference

__all__ = ["NARROW", "linear_cross_entropy", "narrow_score_rows", "score_rows", "top_scores"]

ALIGNED = 16  # floats: products into rows that begin on a cache line are up to 50% faster


def top_scores(scores: Tensor, count: int, blocked: Tensor | None, normalised: bool) -> tuple[Tensor, Tensor]:
    """See `unrolled.kernels.vocabulary.scores.top_scores`."""
    if scores.stride(-1) != 1:
        scores = scores.contiguous()
    job, alive = _native.TopJob(), list[Tensor]()
    job.rows, job.size = scores.shape
    job.scores, job.row_stride, job.best = scores.data_ptr(), scores.stride(0), count
    values, tokens = empty(job.rows, count), torch.empty(job.rows, count, dtype=torch.int64)
    totals = empty(0 if normalised else job.rows)  # an empty tensor has no address
    job.values, job.tokens, job.totals = values.data_ptr(), tokens.data_ptr(), totals.data_ptr()
    if blocked is not None:
        job.blocked, job.blocked_stride = address(blocked, alive), 0 if len(blocked) == 1 else job.size
    job.run(torch.get_num_threads())
    return values if normalised else values - totals[:, None], tokens


def score_rows(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x Wᵀ + b (N, V) in float32, its rows aligned."""
    if (rows := row_engine()) is not None and rows.fits(x, weight, bias):
        return rows.linear(x, weight, bias)
    return _write_scores(x, weight, bias, _aligned_rows(len(x), len(weight)))


def _write_scores(x: Tensor, weight: Tensor, bias: Tensor | None, scores: Tensor) -> Tensor:
    if bias is None:
        return torch.mm(x, weight.t(), out=scores)
    return torch.addmm(bias, x, weight.t(), out=scores)


def narrow_score_rows(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`score_rows` with x and W rounded to bfloat16, but not the scores. Requires `NARROW`."""
    job, alive = _native.NarrowScoresJob(), list[Tensor]()
    job.rows, job.depth = x.shape
    job.size, job.x_stride = len(weight), job.depth
    job.x, job.weight = address(x.float(), alive), address(weight.float(), alive)
    if bias is not None:
        job.bias = address(bias.float(), alive)
    scores = _aligned_rows(job.rows, job.size)
    job.scores, job.scores_stride = scores.data_ptr(), scores.stride(0)
    job.run(torch.get_num_threads())
    return scores


def _aligned_rows(rows: int, size: int) -> Tensor:
    return empty(rows, -(-size // ALIGNED) * ALIGNED)[:, :size]


class LinearInputs(NamedTuple):
    """A linear layer and its targets; `narrow`: products are in bfloat16."""

    x: Tensor  # (N, F)
    weight: Tensor  # (V, F)
    bias: Tensor | None
    targets: Tensor  # (N,)
    smoothing: float
    narrow: bool

    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.narrow else torch.float32


class LinearResults(NamedTuple):
    """The summed loss; the gradients of all scores, with respect to it, and of the bias."""

    loss: Tensor
    saved: Tensor


def _row_size(inputs: LinearInputs) -> int:
    """The width of aligned rows of scores."""
    return -(-inputs.weight.shape[0] // ALIGNED) * ALIGNED


def _saved_size(inputs: LinearInputs) -> int:
    """The number of float32 numbers that hold the scores, and those of the bias."""
    scores: int = inputs.x.shape[0] * _row_size(inputs) * inputs.dtype.itemsize // torch.float32.itemsize
    return scores + inputs.weight.shape[0]  # len() of a tensor would fix its size in a compiled graph


def _saved_parts(inputs: LinearInputs, saved: Tensor) -> tuple[Tensor, Tensor]:
    """Scores (N, V), or their gradients, and the gradient of the bias (V,)."""
    size = _row_size(inputs)
    scores = saved[: -len(inputs.weight)].view(inputs.dtype).view(-1, size)[:, : len(inputs.weight)]
    return scores, saved[-len(inputs.weight) :]


def _forward(inputs: LinearInputs, allocate: Allocate | None) -> LinearResults:
    """The loss; if it is saved, the scores are replaced by their gradient."""
    lease, kind = Lease(), inputs.dtype  # without gradients the scores are needed only here
    saved = (allocate or lease.allocate)(_saved_size(inputs))
    scores, of_bias = _saved_parts(inputs, saved)
    x, weight, bias = (None if part is None else part.to(kind) for part in inputs[:3])
    assert x is not None
    assert weight is not None
    with torch.autocast("cpu", enabled=False):
        _write_scores(x, weight, bias, scores)
    losses, targets = empty(len(x)), inputs.targets.contiguous()
    job = _native.CrossEntropyJob()
    job.rows, job.size, job.scores, job.row_stride = len(x), len(weight), scores.data_ptr(), scores.stride(0)
    job.narrow, job.gradient, job.smoothing = inputs.narrow, allocate is not None, inputs.smoothing
    sums = of_bias if allocate is not None and bias is not None else empty(0)  # an empty tensor has no address
    job.targets, job.losses, job.column_sums = targets.data_ptr(), losses.data_ptr(), sums.data_ptr()
    job.run(torch.get_num_threads())
    return LinearResults(losses.sum(), empty(0) if allocate is None else saved)


def _backward(inputs: LinearInputs, kept: LinearResults, d: LinearResults, needed: Sequence[bool]) -> dict[str, Tensor]:
    d_scores, of_bias = _saved_parts(inputs, kept.saved)
    share, found, kind = float(d.loss), {}, inputs.dtype
    with torch.autocast("cpu", enabled=False):
        if needed[0]:
            found["x"] = _scaled_product(d_scores, inputs.weight.to(kind), share)
        if needed[1]:
            found["weight"] = _scaled_product(d_scores.t(), inputs.x.to(kind), share)
        if needed[2] and inputs.bias is not None:
            found["bias"] = of_bias * share
    return {name: gradient.to(getattr(inputs, name).dtype) for name, gradient in found.items()}


def _scaled_product(a: Tensor, b: Tensor, share: float) -> Tensor:
    return torch.addmm(a.new_empty(1), a, b, beta=0, alpha=share)


def _check(inputs: LinearInputs) -> None:
    lowest, highest = inputs.targets.aminmax()
    if lowest < 0 or highest >= len(inputs.weight):
        raise UserError(
            f"Targets go from {int(lowest)} to {int(highest)}, with {len(inputs.weight)} scores.",
            f"Use targets from 0 to {len(inputs.weight) - 1}.",
        )


def _reference(inputs: LinearInputs) -> tuple[Tensor]:
    x, weight, bias = (None if part is None else part.to(inputs.dtype) for part in inputs[:3])
    assert x is not None
    assert weight is not None
    with torch.autocast("cpu", enabled=False):
        return (reference.linear_cross_entropy(x, weight, bias, inputs.targets, inputs.smoothing),)


def _fake(inputs: LinearInputs, save: bool) -> LinearResults:
    new = partial(inputs.x.new_empty, dtype=torch.float32)
    return LinearResults(new(()), new(_saved_size(inputs) if save else 0))


linear_operator = NativeOperator(
    Kernel(
        "linear_cross_entropy",
        "The native engine",
        LinearInputs,
        LinearResults,
        differentiable="bias",
        forward=_forward,
        backward=_backward,
        fake=_fake,
        fake_gradient=lambda inputs, name: getattr(inputs, name).new_empty(getattr(inputs, name).shape),
        reference=_reference,
        check=_check,
    )
)


def linear_cross_entropy(x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float) -> Tensor:
    """See `unrolled.kernels.vocabulary.scores.linear_cross_entropy`."""
    narrow = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    inputs = LinearInputs(x, weight, bias, targets, smoothing, narrow)
    if not torch.compiler.is_compiling():
        _check(inputs)
    return linear_operator(inputs).loss
