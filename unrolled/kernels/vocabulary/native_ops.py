"""Scores over a vocabulary on the native engine (native/vocabulary/vocabulary.h). Everything is on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import unrolled.kernels._native as _native
from unrolled.errors import UserError
from unrolled.kernels.recurrence.native_buffers import Lease, empty
from unrolled.kernels.recurrence.native_ops import NARROW, address, differentiable_once

__all__ = ["NARROW", "linear_cross_entropy", "narrow_score_rows", "score_rows", "top_scores"]

ALIGNED = 16  # floats: rows that begin on a cache line make products into them up to half as fast again


def top_scores(scores: Tensor, count: int, blocked: Tensor | None, normalised: bool) -> tuple[Tensor, Tensor]:
    """See `unrolled.kernels.vocabulary.scores.top_scores`."""
    if scores.stride(-1) != 1:
        scores = scores.contiguous()
    rows, size = scores.shape
    values, tokens = empty(rows, count), torch.empty(rows, count, dtype=torch.int64)
    totals = empty(0 if normalised else rows)
    if blocked is not None:
        blocked = blocked.contiguous()
    _native.top_scores(
        scores.data_ptr(), rows, size, scores.stride(0), count, 0 if blocked is None else blocked.data_ptr(),
        0 if blocked is None or len(blocked) == 1 else size, values.data_ptr(), tokens.data_ptr(),
        0 if normalised else totals.data_ptr(), torch.get_num_threads(),
    )  # fmt: skip
    return values if normalised else values - totals[:, None], tokens


def score_rows(x: Tensor, weight: Tensor, bias: Tensor | None, allocate: Callable[[int], Tensor] = empty) -> Tensor:
    """x Wᵀ + b (N, V), its rows aligned; `allocate` makes room for so many float32."""
    scores = _aligned_rows(len(x), len(weight), x.dtype, allocate)
    if bias is None:
        return torch.mm(x, weight.t(), out=scores)
    return torch.addmm(bias, x, weight.t(), out=scores)


def narrow_score_rows(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`score_rows` with x and W rounded to bfloat16, but not the scores. Where there is `NARROW`."""
    alive: list[Tensor] = []
    x, size = x.float(), len(weight)
    scores = _aligned_rows(len(x), size)
    _native.narrow_scores(
        address(x, alive), len(x), x.shape[1], x.shape[1], address(weight.float(), alive), size,
        0 if bias is None else address(bias.float(), alive), scores.data_ptr(), scores.stride(0),
        torch.get_num_threads(),
    )  # fmt: skip
    return scores


def _aligned_rows(
    rows: int, size: int, kind: torch.dtype = torch.float32, allocate: Callable[[int], Tensor] = empty
) -> Tensor:
    wide = -(-size // ALIGNED) * ALIGNED
    return allocate(rows * wide * kind.itemsize // torch.float32.itemsize).view(kind).view(rows, wide)[:, :size]


class _LinearCrossEntropy(torch.autograd.Function):
    """The scores' gradient takes their place at once: the products with it are all that is left for the way back."""

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
        _native.cross_entropy(
            scores.data_ptr(), len(x), len(weight), scores.stride(0), narrow, gradient, smoothing, targets.data_ptr(),
            losses.data_ptr(), of_bias.data_ptr() if len(of_bias) else 0, torch.get_num_threads(),
        )  # fmt: skip
        if gradient:
            ctx.kept = scores, of_bias  # not seen from outside
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
    """The gradients of x, weight and bias; an empty tensor where there is no need of one."""
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


_products = differentiable_once(_gradients)


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
