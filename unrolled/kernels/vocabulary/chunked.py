"""The cross-entropy of a linear layer on a GPU, a few rows at a time: the scores of all rows are never held at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from unrolled.kernels.cuda.products import product
from unrolled.kernels.native_operator import gradients_by
from unrolled.kernels.vocabulary.cuda import engine
from unrolled.kernels.vocabulary.cuda.constants import PACKED
from unrolled.kernels.vocabulary.cuda.plan import NUMBERS

IGNORED = -100  # a target that is not scored, as in torch
MOST_SCORES = 2**25  # of a chunk: 128 MB in float32


def pays(x: Tensor, weight: Tensor) -> bool:
    """True if the loss is faster here, or too large for its scores to be held whole."""
    return _by_kernel(_dtype(x), x.device) or len(x) * len(weight) > MOST_SCORES


def _dtype(x: Tensor) -> torch.dtype:
    """The dtype of products."""
    return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype


def _by_kernel(dtype: torch.dtype, device: torch.device) -> bool:
    return dtype in NUMBERS and engine.ready(device)


def linear_cross_entropy(x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float) -> Tensor:
    """The summed cross-entropy of softmax(x Wᵀ + b), and its gradients in the same pass; see `scores`."""
    dtype = _dtype(x)
    with torch.autocast("cuda", enabled=False):
        result: Tensor = _Chunked.apply(x, weight, bias, targets, smoothing, dtype)  # type: ignore[no-untyped-call]
    return result


def linear_scores(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x Wᵀ + b without a gradient. In 16 bits W is padded for the tensor cores, which takes less time than it saves."""
    dtype, vocabulary = _dtype(x), len(weight)
    if dtype not in NUMBERS or vocabulary % PACKED == 0:
        return F.linear(x, weight, bias)
    more = engine.padded(vocabulary) - vocabulary
    with torch.autocast("cuda", enabled=False):
        factor = F.pad(weight.to(dtype), (0, 0, 0, more))
        added = None if bias is None else F.pad(bias.to(dtype), (0, more))
        return F.linear(x.to(dtype), factor, added)[:, :vocabulary]


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
        job = _Job(x, weight, bias, targets, smoothing, dtype)
        compute = _narrow if _by_kernel(dtype, x.device) else _wide
        total, *gradients = compute(job, ctx.needs_input_grad[:3])
        ctx.gradients = gradients
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
        return (*scaled, None, None, None)


class _Job(NamedTuple):
    """The inputs of a loss, and the dtype of its products."""

    x: Tensor  # (N, F)
    weight: Tensor  # (V, F)
    bias: Tensor | None
    targets: Tensor  # (N,)
    smoothing: float
    dtype: torch.dtype

    def parts(self, width: int) -> list[slice]:
        """Chunks of the rows, for rows of so many scores."""
        rows, size = len(self.x), max(1, MOST_SCORES // width)
        return [slice(first, min(rows, first + size)) for first in range(0, rows, size)]


_Result = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]  # the loss, ∂x, ∂W and ∂b where they are needed


def _wide(job: _Job, needed: Sequence[bool]) -> _Result:
    """The loss and its gradients with scores in float32, in plain torch."""
    x, weight, bias, targets, smoothing, dtype = job
    need_x, need_weight, need_bias = needed
    narrow, factor = x.to(dtype), weight.to(dtype)
    total = x.new_zeros((), dtype=torch.float32)
    d_x = torch.empty_like(narrow) if need_x else None
    d_weight = torch.zeros(weight.shape, dtype=torch.float32, device=x.device) if need_weight else None
    d_bias = torch.zeros(len(weight), dtype=torch.float32, device=x.device) if need_bias else None
    for part in job.parts(len(weight)):
        scores = (narrow[part] @ factor.t()).float()  # (n, V)
        if bias is not None:
            scores += bias
        losses, gradient = _losses(scores, targets[part], smoothing)
        total += losses
        if not any(needed):
            continue
        if d_bias is not None:
            d_bias += gradient.sum(0)
        rounded = gradient.to(dtype)
        if d_x is not None:
            torch.mm(rounded, factor, out=d_x[part])
        if d_weight is not None:
            d_weight += rounded.t() @ narrow[part]
    return total, d_x, d_weight, d_bias


def _narrow(job: _Job, needed: Sequence[bool]) -> _Result:
    """The same with scores in 16 bits, which our kernel turns into their gradient.

    Matrices are padded for the tensor cores. The bias is one more column of W, and x has a one there: so the products
    give its part of the scores, and its gradient, too.
    """
    vocabulary, size = job.weight.shape
    inner = engine.padded(size + (job.bias is not None))
    rows = job.x.new_zeros(len(job.x), inner, dtype=job.dtype)
    factor = job.weight.new_zeros(engine.padded(vocabulary), inner, dtype=job.dtype)
    rows[:, :size] = job.x
    factor[:vocabulary, :size] = job.weight
    if job.bias is not None:
        rows[:, size] = 1
        factor[:vocabulary, size] = job.bias
    targets = job.targets.contiguous()
    total = job.x.new_zeros((), dtype=torch.float32)
    d_rows = torch.empty_like(rows) if needed[0] else None
    d_factor: Tensor | None = None
    for part in job.parts(len(factor)):
        scores = rows[part] @ factor.t()  # (n, V), then their gradient
        given = (vocabulary, job.smoothing, IGNORED)
        total += engine.cross_entropy_(scores, targets[part], *given, with_gradient=any(needed)).sum()
        if d_rows is not None:
            torch.mm(scores, factor, out=d_rows[part])
        if any(needed[1:]):
            found = product(scores.t(), rows[part], wide=True)
            d_factor = found if d_factor is None else d_factor.add_(found)
    d_x = None if d_rows is None else d_rows[:, :size]
    if d_factor is None:
        return total, d_x, None, None
    return total, d_x, d_factor[:vocabulary, :size], None if job.bias is None else d_factor[:vocabulary, size]


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
