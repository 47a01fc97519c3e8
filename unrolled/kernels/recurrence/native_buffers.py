"""Buffers of the native engine: what a run saves for its backward pass, and in which order its rows stand."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import torch
from torch import Tensor

import unrolled.kernels._native as _native

RNN_TANH, RNN_RELU, LSTM, GRU_RESET_AFTER, GRU_RESET_BEFORE = range(5)
GATES = (1, 1, 4, 3, 3)

fill_with_nan = os.environ.get("UNROLLED_NAN_BUFFERS") == "1"
"""Tests set this: fresh buffers are filled with NaN, so that a value read before it is written is seen."""


def empty(*shape: int) -> Tensor:
    fresh = torch.empty(shape, dtype=torch.float32, device="cpu")
    return fresh.fill_(float("nan")) if fill_with_nan else fresh


@dataclass(frozen=True)
class Sections:
    """What `saved` holds, in order: name → shape of each section, (T·B, ·) rows all of them."""

    shapes: dict[str, tuple[int, int]]

    @property
    def size(self) -> int:
        return sum(prod(shape) for shape in self.shapes.values())

    def views(self, saved: Tensor) -> dict[str, Tensor]:
        """Each section as a matrix."""
        found, start = {}, 0
        for name, shape in self.shapes.items():
            found[name] = saved[start : start + prod(shape)].view(shape)
            start += prod(shape)
        return found


def sections(
    x: Tensor,
    weight_hh: Tensor,
    kind: int,
    *,
    norm_ih: bool,
    norm_hh: bool,
    norm_c: bool,
    weight_hr: bool,
    hidden_mask: bool,
    traced: bool,
) -> Sections:
    """The sections that a recurrence with these options saves."""
    batch, steps, _ = x.shape
    rows, (wide, width) = batch * steps, weight_hh.shape
    hidden = wide // GATES[kind]
    shapes = {"gates": (rows, wide), "h_entering": (rows, width)}
    if kind == LSTM:
        shapes["c_entering"] = (rows, hidden)
    if kind in (GRU_RESET_AFTER, GRU_RESET_BEFORE):
        shapes["candidate"] = (rows, hidden)
    if hidden_mask:
        shapes["seen"] = (rows, width)
    if norm_hh:
        shapes["raw"] = (rows, wide)
    if norm_hh or norm_c:
        shapes["stats"] = (rows, 4)
    if weight_hr:
        shapes["shown"] = (rows, hidden)
    if norm_ih:
        shapes |= {"projected": (rows, wide), "mean": (rows, 1), "inverse": (rows, 1)}
    if traced and kind == LSTM:
        shapes["c_left"] = (rows, hidden)
    return Sections(shapes)


def time_major(x: Tensor) -> bool:
    """Whether x (B, T, ·) lies in memory time first; one sequence or one step lies both ways."""
    return not x.is_contiguous() and x.transpose(0, 1).is_contiguous()


class Order:
    """The order of sequences within a step's rows: as given, or longest first."""

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


def at_all_times(rows: Tensor, x: Tensor, lengths: Tensor | None) -> Tensor:
    """A section's rows as (B, T, ·), zero in the padding."""
    return Order(x, lengths).sequences(rows, x.shape[0])


def like_sequences(x: Tensor, width: int) -> Tensor:
    """A fresh (B, T, width) in the memory order of x."""
    batch, steps = x.shape[:2]
    if time_major(x):
        return empty(steps, batch, width).transpose(0, 1)
    return empty(batch, steps, width)


def zeros(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.float32, device="cpu")


class Lease:
    """A buffer that goes back to a small store when its holder is gone: fresh memory costs a page fault every 4 KB."""

    _free: ClassVar[list[Tensor]] = []
    _FLOATS = 2**26  # kept at most, 256 MB in all

    def __init__(self) -> None:
        self.buffer: Tensor | None = None

    def allocate(self, size: int) -> Tensor:
        fitting = [i for i, buffer in enumerate(self._free) if size <= buffer.numel() <= 2 * size + 4096]
        try:
            self.buffer = self._free.pop(fitting[0]) if fitting else empty(size)
        except IndexError:  # another thread was faster
            self.buffer = empty(size)
        return (self.buffer.fill_(float("nan")) if fill_with_nan else self.buffer)[:size]

    def __del__(self) -> None:
        if self.buffer is None or self.buffer.numel() > self._FLOATS:
            return
        while self._free and sum(b.numel() for b in self._free) + self.buffer.numel() > self._FLOATS:
            self._free.pop(0)
        self._free.append(self.buffer)
