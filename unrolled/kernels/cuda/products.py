"""Matrix products with 16-bit factors."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor


def product(a: Tensor, b: Tensor, wide: bool, out: Tensor | None = None) -> Tensor:
    """The matrix product, in float32 if `wide`: the precision of its sums."""
    if not wide:
        return torch.mm(a, b, out=out)
    if a.is_cuda:
        return torch.mm(a, b, out_dtype=torch.float32, out=out)
    return torch.mm(a.float(), b.float(), out=out)


def column_sums(matrix: Tensor) -> Tensor:
    """The sums of a 16-bit matrix's columns in float32; on a GPU a product with ones is faster than a sum."""
    if not matrix.is_cuda or torch.cuda.get_device_capability(matrix.device)[0] < 8:
        return matrix.sum(0, dtype=torch.float32)
    rows = 1 << max(0, len(matrix) - 1).bit_length()
    return product(_ones(rows, matrix.dtype, matrix.device)[:, : len(matrix)], matrix, wide=True)[0]


@cache
def _ones(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(1, count) ones, kept for ever: a recorded CUDA graph reads them where they are.

    The first update of a set of shapes runs without a graph, so they are never made while one is recorded.
    """
    return torch.ones(1, count, dtype=dtype, device=device)
