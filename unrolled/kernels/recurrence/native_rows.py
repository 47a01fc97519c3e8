"""The order in which the native engine reads sequences: rows time first, longest sequence first."""

from __future__ import annotations

import torch
from torch import Tensor

import unrolled.kernels._native as _native
from unrolled.kernels.native_buffers import empty


class RowOrder:
    """The order of sequences within a step's rows: of the batch, or longest first where there are lengths."""

    def __init__(self, x: Tensor, lengths: Tensor | None) -> None:
        self.lengths = lengths
        if lengths is None:
            return
        batch, steps, _ = x.shape
        self.lengths = lengths.contiguous()
        self.indices = torch.empty(batch, dtype=torch.int64, device="cpu")
        self.active = torch.empty(steps, dtype=torch.int64, device="cpu")
        _native.sort_by_length(self.lengths.data_ptr(), batch, steps, self.indices.data_ptr(), self.active.data_ptr())

    def describe(self, job: _native.ScanJob | _native.AttentionJob) -> None:
        """Give the job this order, which must outlive its run."""
        if self.lengths is not None:
            job.lengths = self.lengths.data_ptr()
            job.order, job.active = self.indices.data_ptr(), self.active.data_ptr()

    def mask(self, steps: int) -> Tensor:
        """(B, T), True where real."""
        assert self.lengths is not None
        return torch.arange(steps, device="cpu") < self.lengths[:, None]

    def rows(self, x: Tensor) -> Tensor:
        """(B, T, D) → (T·B, D) rows, zeros for padding: a NaN in it must not reach a weight's gradient."""
        if self.lengths is not None:
            x = torch.where(self.mask(x.shape[1])[..., None], x, 0).index_select(0, self.indices)
        return x.transpose(0, 1).reshape(-1, x.shape[-1])

    def sequences(self, rows: Tensor, batch: int) -> Tensor:
        """(T·B, D) rows → (B, T, D), zeros for padding."""
        x = rows.view(-1, batch, rows.shape[1]).transpose(0, 1)
        if self.lengths is None:
            return x
        x = x.index_select(0, torch.argsort(self.indices))
        return torch.where(self.mask(x.shape[1])[..., None], x, 0)


def time_major(x: Tensor) -> bool:
    """True if x (B, T, ·) lies in memory time first; one sequence or one step lies both ways."""
    return not x.is_contiguous() and x.transpose(0, 1).is_contiguous()


def like_sequences(x: Tensor, width: int) -> Tensor:
    """A fresh (B, T, width) in the memory order of x."""
    batch, steps = x.shape[:2]
    if time_major(x):
        return empty(steps, batch, width).transpose(0, 1)
    return empty(batch, steps, width)


def in_memory_order(sequences: Tensor, x: Tensor) -> Tensor:
    """(B, T, ·) in the memory order of x, which the operator's fake kernel promises."""
    if time_major(x):
        return sequences.transpose(0, 1).contiguous().transpose(0, 1)
    return sequences.contiguous()
