"""Matrix products of a layer beside its recurrence: of the input, and the gradients of weights and input.

cuBLAS is two to four times as fast where every row begins at a multiple of 16 bytes. Rows of 650 numbers do not: large
matrices are copied and filled up with zeros, which takes a quarter of what it saves; of Python's time it takes more.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from unrolled.kernels.recurrence.cuda import launch

EIGHT = 8  # numbers of 16 bits in 16 bytes
# Numbers multiplied with each other, from which on copies take less time than they save; the second, Python's too.
WORTH, WORTH_PYTHON = 1 << 28, 1 << 32


def uneven(rows: int, inner: int, columns: int, device: torch.device) -> bool:
    """Whether (rows, inner) by (inner, columns), the latter lying either way, is worth filling up."""
    if not (inner % EIGHT or columns % EIGHT):
        return False
    return rows * inner * columns >= (WORTH if launch.capturing(device) else WORTH_PYTHON)


def filled(matrix: Tensor, rows: bool = False) -> Tensor:
    """With zeros up to a multiple of eight columns, and of as many rows if that is said."""
    right, below = -matrix.shape[1] % EIGHT, -matrix.shape[0] % EIGHT if rows else 0
    if not (right or below):
        return matrix
    if _in_words(matrix):
        return F.pad(matrix.view(torch.int32), (0, right // 2, 0, below)).view(matrix.dtype)
    return F.pad(matrix, (0, right, 0, below))


def cut(matrix: Tensor, rows: int, columns: int) -> Tensor:
    """Its first rows and columns, by themselves in memory."""
    if columns % 2 == 0 and _in_words(matrix):
        return matrix.view(torch.int32)[:rows, : columns // 2].contiguous().view(matrix.dtype)
    return matrix[:rows, :columns].contiguous()


def _in_words(matrix: Tensor) -> bool:
    """Whether two numbers make one word of 32 bits, which is copied twice as fast."""
    even = matrix.element_size() == 2 and matrix.shape[1] % 2 == 0 and matrix.storage_offset() % 2 == 0
    return even and matrix.is_contiguous()


def product(a: Tensor, b: Tensor, wide: bool, out: Tensor | None = None) -> Tensor:
    """The matrix product, in 32 bits if that is `wide`: what it was summed up in."""
    if not wide:
        return torch.mm(a, b, out=out)
    if a.is_cuda:
        return torch.mm(a, b, out_dtype=torch.float32, out=out)
    return torch.mm(a.float(), b.float(), out=out)
