"""The cross-entropy of a linear layer on a GPU, a few rows at a time: the scores of all rows are never held at once."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from unrolled.kernels.native_operator import gradients_by

IGNORED = -100  # a target that is not scored, as in torch
MOST_SCORES = 2**25  # of a chunk: 128 MB in float32


def linear_cross_entropy(x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float) -> Tensor:
    """The summed cross-entropy of softmax(x Wᵀ + b), and its gradients in the same pass; see `scores`."""
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype
    with torch.autocast("cuda", enabled=False):
        result: Tensor = _Chunked.apply(x, weight, bias, targets, smoothing, dtype)  # type: ignore[no-untyped-call]
    return result


class _Chunked(torch.autograd.Function):
    """With p = softmax(x Wᵀ + b), y one-hot and smoothing s over V tokens:

        L = Σ lse − (1 − s) score(target) − s/V Σ_v score(v),   ∂L/∂scores = p − (1 − s) y − s/V

    The gradient of a chunk overwrites its scores; products with x and W then give the parts of ∂x, ∂W and ∂b.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        dtype: torch.dtype,
    ) -> Tensor:
        rows, vocabulary = len(x), len(weight)
        need_x, need_weight, need_bias = ctx.needs_input_grad[:3]
        narrow, factor = x.to(dtype), weight.to(dtype)
        total = x.new_zeros((), dtype=torch.float32)
        d_x = torch.empty_like(narrow) if need_x else None
        d_weight = torch.zeros(weight.shape, dtype=torch.float32, device=x.device) if need_weight else None
        d_bias = torch.zeros(vocabulary, dtype=torch.float32, device=x.device) if need_bias else None
        size = max(1, MOST_SCORES // vocabulary)
        for first in range(0, rows, size):
            part = slice(first, min(rows, first + size))
            scores = (narrow[part] @ factor.t()).float()  # (n, V)
            if bias is not None:
                scores += bias
            losses, gradient = _losses(scores, targets[part], smoothing)
            total += losses
            if not any(ctx.needs_input_grad[:3]):
                continue
            if d_bias is not None:
                d_bias += gradient.sum(0)
            rounded = gradient.to(dtype)
            if d_x is not None:
                torch.mm(rounded, factor, out=d_x[part])
            if d_weight is not None:
                d_weight += rounded.t() @ narrow[part]
        ctx.gradients = d_x, d_weight, d_bias
        ctx.save_for_backward(x, weight, bias, targets)
        ctx.settings = smoothing, dtype
        ctx.dtypes = x.dtype, weight.dtype, None if bias is None else bias.dtype
        return total

    @staticmethod
    def backward(ctx: Any, d_loss: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph=True: all scores at once
            *inputs, targets = ctx.saved_tensors
            run = partial(_at_once, targets=targets, smoothing=ctx.settings[0], dtype=ctx.settings[1])
            gradients = gradients_by(run, inputs, [d_loss], ctx.needs_input_grad[:3])
            assert gradients is not None
            return (*gradients, None, None, None)
        found = zip(ctx.gradients, ctx.dtypes, strict=True)
        scaled = [None if one is None else (one * d_loss).to(dtype) for one, dtype in found]
        ctx.gradients = None
        return (*scaled, None, None, None)


def _at_once(
    x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float, dtype: torch.dtype
) -> tuple[Tensor]:
    """The loss in plain torch; any order of derivative."""
    scores = F.linear(x.to(dtype), weight.to(dtype)).float()
    scores = scores if bias is None else scores + bias
    options: dict[str, Any] = {"ignore_index": IGNORED, "reduction": "sum"}
    return (F.cross_entropy(scores, targets, label_smoothing=smoothing, **options),)


def _losses(scores: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """The summed loss of float32 scores (n, V), and its gradient in their memory."""
    scored = targets != IGNORED  # (n,)
    places = torch.where(scored, targets, 0)[:, None]
    norm = scores.logsumexp(-1, keepdim=True)
    losses = norm[:, 0] - (1 - smoothing) * scores.gather(1, places)[:, 0]
    if smoothing:
        losses = losses - smoothing * scores.mean(-1)
    gradient = scores.sub_(norm).exp_()
    if smoothing:
        gradient -= smoothing / scores.shape[1]
    gradient.scatter_add_(1, places, gradient.new_full(places.shape, smoothing - 1))
    gradient *= scored[:, None]
    return torch.where(scored, losses, 0.0).sum(), gradient
