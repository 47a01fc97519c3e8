"""The ReLU as torch's compiler writes it well."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class FloatMaskReLU(torch.autograd.Function):
    """The ReLU with a gradient from its output's sign, ∂L/∂x = ∂L/∂y · sgn(y).

    torch's own keeps a mask of truth values, which torch 2.13 compiles for a CPU to a loop over single numbers: ten
    times the time of the rest of the ReLU. The numbers are the same.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.relu(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        found: Tensor = gradient * torch.sgn(y)
        return found


def compiled_well(activation: Any, x: Tensor) -> Any:
    """The activation of x; a ReLU inside torch.compile on a CPU is a `FloatMaskReLU`."""
    if (
        activation is torch.relu
        and torch.compiler.is_compiling()
        and not torch.compiler._is_exporting_flag  # is_exporting() is also True inside torch.compile of torch 2.11
        and x.device.type == "cpu"
        and torch.is_grad_enabled()
    ):
        return FloatMaskReLU.apply(x)  # type: ignore[no-untyped-call]
    return activation(x)
