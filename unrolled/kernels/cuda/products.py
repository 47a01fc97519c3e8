"""Matrix products with 16-bit factors."""

from __future__ import annotations

import torch
from torch import Tensor


def product(a: Tensor, b: Tensor, wide: bool, out: Tensor | None = None) -> Tensor:
    """The matrix product, in float32 if `wide`: the precision of its sums."""
    if not wide:
        return torch.mm(a, b, out=out)
    if a.is_cuda:
        return torch.mm(a, b, out_dtype=torch.float32, out=out)
    return torch.mm(a.float(), b.float(), out=out)
