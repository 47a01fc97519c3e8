"""Matrix products of a layer besides its recurrence: the input product, and the gradients of weights and input.

cuBLAS is two to four times as fast if every row begins at a multiple of 16 bytes. Rows of 650 numbers do not: large
matrices are copied and padded with zeros, which takes a quarter of the time it saves, but also some of Python's time.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from unrolled.kernels.recurrence.cuda import launch
from unrolled.kernels.recurrence.cuda.constants import VECTOR

# Multiplications of a product from which on padding saves time: in a CUDA graph, and launched from Python.
MIN_IN_GRAPH, MIN_EAGER = 1 << 28, 1 << 32


def worth_padding(rows: int, inner: int, columns: int, device: torch.device) -> bool:
    """True if padding makes the product of (rows, inner) and (inner, columns) faster."""
    if not (inner % VECTOR or columns % VECTOR):
        return False
    return rows * inner * columns >= (MIN_IN_GRAPH if launch.capturing(device) else MIN_EAGER)


def padded(matrix: Tensor, rows: bool = False) -> Tensor:
    """The matrix with zeros up to a multiple of eight columns, and of eight rows if `rows`."""
    right, below = -matrix.shape[1] % VECTOR, -matrix.shape[0] % VECTOR if rows else 0
    if not (right or below):
        return matrix
    if _in_words(matrix):
        return F.pad(matrix.view(torch.int32), (0, right // 2, 0, below)).view(matrix.dtype)
    return F.pad(matrix, (0, right, 0, below))


def cut(matrix: Tensor, rows: int, columns: int) -> Tensor:
    """A contiguous copy of the first rows and columns."""
    if columns % 2 == 0 and _in_words(matrix):
        return matrix.view(torch.int32)[:rows, : columns // 2].contiguous().view(matrix.dtype)
    return matrix[:rows, :columns].contiguous()


def _in_words(matrix: Tensor) -> bool:
    """True if two numbers form one aligned 32-bit word: such copies are twice as fast."""
    even = matrix.element_size() == 2 and matrix.shape[1] % 2 == 0 and matrix.storage_offset() % 2 == 0
    return even and matrix.is_contiguous()
