"""A linear layer whose gradients under autocast on a GPU are float32 from the start."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unrolled.cells import apart
from unrolled.kernels.cuda.products import column_sums, product
from unrolled.kernels.native_operator import gradients_by, transformed

NARROW = (torch.bfloat16, torch.float16)


class Linear(nn.Linear):
    """torch.nn.Linear; see `linear`.

    >>> Linear(4, 2)(torch.zeros(3, 4)).shape
    torch.Size([3, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """F.linear. Under autocast on a GPU the gradients of weight and bias are not rounded to 16 bits on their way.

    That also saves the pass that would turn each of them into float32.
    """
    if not _narrowed(x, weight, bias):
        return apart.linear(x, weight, bias)
    dtype = torch.get_autocast_dtype("cuda")
    with torch.autocast("cuda", enabled=False):
        found: Tensor = _Narrow.apply(x.to(dtype), weight, bias)  # type: ignore[no-untyped-call]  # torch's
    return found


def _narrowed(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    if not (x.is_cuda and torch.is_autocast_enabled("cuda") and torch.is_grad_enabled() and weight.requires_grad):
        return False
    if weight.dtype != torch.float32 or (bias is not None and not bias.requires_grad):
        return False
    narrow = torch.get_autocast_dtype("cuda") in NARROW
    return narrow and not torch.compiler.is_compiling() and not transformed()


class _Narrow(torch.autograd.Function):
    """x Wᵀ + b for x in 16 bits, and W and b in float32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight, bias)
        ctx.factor = weight.to(x.dtype)
        return F.linear(x, ctx.factor, None if bias is None else bias.to(x.dtype))

    @staticmethod
    def backward(ctx: Any, d_output: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            gradients = gradients_by(_plain, (x, weight, bias), [d_output], ctx.needs_input_grad)
            assert gradients is not None
            return tuple(gradients)
        flat = d_output.reshape(-1, d_output.shape[-1])
        d_x = (flat @ ctx.factor).view_as(x) if ctx.needs_input_grad[0] else None
        d_weight = product(flat.t(), x.reshape(-1, x.shape[-1]), wide=True)
        return d_x, d_weight, None if bias is None else column_sums(flat)


def _plain(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor]:
    """The same function for torch to differentiate as often as needed."""
    return (F.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype)),)
