"""Scores over a vocabulary on the native engine (native/vocabulary/vocabulary.h). Everything is on the CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import unrolled.kernels._native as _native
from unrolled.errors import UserError
from unrolled.kernels.native_buffers import Allocate, Lease, address, empty
from unrolled.kernels.native_core import NARROW
from unrolled.kernels.native_operator import differentiable_once

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


def score_rows(x: Tensor, weight: Tensor, bias: Tensor | None, allocate: Allocate = empty) -> Tensor:
    """x Wᵀ + b (N, V), its rows aligned; `allocate` returns a flat float32 buffer."""
    scores = _aligned_rows(len(x), len(weight), x.dtype, allocate)
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


def _aligned_rows(rows: int, size: int, kind: torch.dtype = torch.float32, allocate: Allocate = empty) -> Tensor:
    wide = -(-size // ALIGNED) * ALIGNED
    return allocate(rows * wide * kind.itemsize // torch.float32.itemsize).view(kind).view(rows, wide)[:, :size]


class _LinearCrossEntropy(torch.autograd.Function):
    """The forward pass replaces the scores by their gradient; the backward pass multiplies it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float) -> Tensor:
        narrow = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
        kind = torch.bfloat16 if narrow else torch.float32
        x, weight, bias = x.to(kind), weight.to(kind), None if bias is None else bias.to(kind)
        gradient = any(ctx.needs_input_grad)
        with torch.autocast("cpu", enabled=False):
            ctx.lease = Lease()
            scores = score_rows(x, weight, bias, ctx.lease.allocate)
        losses, of_bias = empty(len(x)), empty(len(weight) if ctx.needs_input_grad[2] else 0)
        targets = targets.contiguous()
        job = _native.CrossEntropyJob()
        job.rows, job.size, job.scores, job.row_stride = len(x), len(weight), scores.data_ptr(), scores.stride(0)
        job.narrow, job.gradient, job.smoothing = narrow, gradient, smoothing
        job.targets, job.losses, job.column_sums = targets.data_ptr(), losses.data_ptr(), of_bias.data_ptr()
        job.run(torch.get_num_threads())
        if gradient:
            ctx.kept = scores, of_bias  # not visible to callers
            ctx.save_for_backward(x, weight)
        return losses.sum()

    @staticmethod
    def backward(ctx: Any, d_loss: Tensor) -> tuple[Tensor | None, ...]:
        needed = ctx.needs_input_grad[:3]
        found = _products(*ctx.kept, *ctx.saved_tensors, d_loss, needed)
        return *(one if need else None for one, need in zip(found, needed, strict=True)), None, None


def _gradients(
    d_scores: Tensor, of_bias: Tensor, x: Tensor, weight: Tensor, d_loss: Tensor, needed: tuple[bool, bool, bool]
) -> list[Tensor]:
    """The gradients of x, weight and bias; an empty tensor if not needed."""
    share, found = float(d_loss), [empty(0)] * 3
    with torch.autocast("cpu", enabled=False):
        if needed[0]:
            found[0] = _scaled_product(d_scores, weight, share)
        if needed[1]:
            found[1] = _scaled_product(d_scores.t(), x, share)
        if needed[2]:
            found[2] = of_bias * share
    return found


def _scaled_product(a: Tensor, b: Tensor, share: float) -> Tensor:
    return torch.addmm(a.new_empty(1), a, b, beta=0, alpha=share).float()


_products = differentiable_once("The native engine", _gradients)


def linear_cross_entropy(x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float) -> Tensor:
    """See `unrolled.kernels.vocabulary.scores.linear_cross_entropy`."""
    lowest, highest = targets.aminmax()
    if lowest < 0 or highest >= len(weight):
        raise UserError(
            f"Targets go from {int(lowest)} to {int(highest)}, with {len(weight)} scores.",
            f"Use targets from 0 to {len(weight) - 1}.",
        )
    loss: Tensor = _LinearCrossEntropy.apply(x, weight, bias, targets, smoothing)  # type: ignore[no-untyped-call]
    return loss
