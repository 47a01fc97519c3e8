"""Memory of the native engine: fresh and reused buffers, sections of a saved buffer, addresses for a C++ job."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import torch
from torch import Tensor

fill_with_nan = os.environ.get("UNROLLED_NAN_BUFFERS") == "1"
"""Fill fresh buffers with NaN, so that tests see a value that is read before it is written."""

Allocate = Callable[[int], Tensor]
"""Returns a flat float32 buffer of a size."""

_FLOAT32 = torch.empty(0, dtype=torch.float32, device="cpu")  # new_empty takes half the time of torch.empty


def empty(*shape: int) -> Tensor:
    """An uninitialised float32 tensor on the CPU."""
    fresh = _FLOAT32.new_empty(*shape)
    return fresh.fill_(float("nan")) if fill_with_nan else fresh


def zeros(*shape: int) -> Tensor:
    """A float32 tensor of zeros on the CPU."""
    return _FLOAT32.new_zeros(*shape)


class Lease:
    """A buffer that returns to a small pool with its holder: fresh memory costs a page fault every 4 KB."""

    _free: ClassVar[list[Tensor]] = []
    _FLOATS = 2**26  # the pool's limit, 256 MB in all

    def __init__(self) -> None:
        self.buffer: Tensor | None = None

    def allocate(self, size: int) -> Tensor:
        """A flat buffer of `size` numbers."""
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


@dataclass(frozen=True)
class Sections:
    """The layout of a saved buffer: name → shape of each section, in order; their rows are steps of sequences."""

    shapes: dict[str, tuple[int, int]]

    @property
    def size(self) -> int:
        return sum(prod(shape) for shape in self.shapes.values())

    def views(self, saved: Tensor) -> dict[str, Tensor]:
        """Each section as a matrix."""
        views, start = {}, 0
        for name, shape in self.shapes.items():
            views[name] = saved[start : start + prod(shape)].view(shape)
            start += prod(shape)
        return views


def address(tensor: Tensor, alive: list[Tensor]) -> int:
    """The address of a contiguous tensor, which `alive` holds for as long as the address is used."""
    if not tensor.is_contiguous():
        tensor = tensor.contiguous()
    alive.append(tensor)
    return tensor.data_ptr()


def set_addresses(job: Any, inputs: Any, names: Iterable[str], alive: list[Any], prefix: str = "") -> None:
    """Give the job the addresses of those of `inputs`' tensors that exist; `alive` must outlive its run."""
    for name in names:
        tensor = getattr(inputs, name)
        if tensor is None:
            continue
        if not tensor.is_contiguous():
            tensor = tensor.contiguous()
        alive.append(tensor)
        setattr(job, prefix + name, tensor.data_ptr())


def set_buffers(job: Any, buffers: dict[str, Tensor], prefix: str = "") -> None:
    """Give the job the addresses of contiguous buffers that the caller holds."""
    for name, buffer in buffers.items():
        setattr(job, prefix + name, buffer.data_ptr())


def set_sequences(setters: Iterable[tuple[Callable[[int, int, int], None], Tensor | None]], alive: list[Any]) -> None:
    """`set_sequence` for those tensors that exist; `alive` must outlive the run of the job."""
    alive += [set_sequence(setter, tensor) for setter, tensor in setters if tensor is not None]


def set_sequence(setter: Callable[[int, int, int], None], tensor: Tensor) -> Tensor:
    """Give the job a (B, T, ·) tensor with its strides; the tensor returned must outlive its run."""
    if tensor.stride(-1) != 1:
        tensor = tensor.contiguous()
    setter(tensor.data_ptr(), tensor.stride(0), tensor.stride(1))
    return tensor
