"""Batches in one buffer: one copy moves all their tensors to a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from unrolled.data.batching.batch import Batch

ALIGNED = 16  # bytes
KNOWN = 4096  # layouts that are kept
FIELDS = tuple(field.name for field in fields(Batch) if field.name != "more")
ONES = ("lengths", "more.spelling_lengths")  # padded with ones: a row of padding has one step

Shapes = Mapping[str, tuple[int, ...]]


class PlacedTensor(NamedTuple):
    """A tensor's place in a buffer."""

    name: str
    shape: tuple[int, ...]
    kind: np.dtype[Any]
    number: torch.dtype
    first: int
    last: int


@dataclass(frozen=True)
class Layout:
    """The places of a batch's tensors in a buffer of `size` bytes."""

    parts: tuple[PlacedTensor, ...]
    size: int

    def over(self, buffer: Tensor) -> PackedBatch:
        """A batch whose tensors are views of a buffer."""
        views = {part.name: buffer[part.first : part.last].view(part.number).view(part.shape) for part in self.parts}
        return _batch(views, buffer, self)


@dataclass(frozen=True)
class PackedBatch(Batch):
    """A batch whose numbers stand in `buffer`, one tensor after the other. On the CPU its fields are NumPy's arrays:
    most batches are copied to a GPU and never looked at again, and tensors take longer to make."""

    buffer: Any = None  # (bytes,) uint8
    layout: Any = None

    def to(self, device: torch.device | str) -> PackedBatch:
        """The batch as tensors on a device, by one copy."""
        place = torch.device(device)
        if self.buffer.device != place:
            return self.over(self.buffer.to(place, non_blocking=True))
        return self if isinstance(self.inputs, Tensor) else self.over(self.buffer)

    def over(self, buffer: Tensor) -> PackedBatch:
        """A batch with the same shapes whose tensors are views of another buffer."""
        batch: PackedBatch = self.layout.over(buffer)
        return batch


def packed(batch: Batch, *, pinned: bool, shapes: Shapes | None = None) -> PackedBatch:
    """A batch on the CPU as a copy in one buffer; `pinned` memory can be copied to a GPU in the background.

    With `shapes` its tensors are padded to these.

    >>> batch = packed(Batch(torch.tensor([[1, 2]]), torch.tensor([3.0])), pinned=False)
    >>> batch.inputs, batch.buffer.view(torch.int64)[:2], len(batch.buffer)
    (array([[1, 2]]), tensor([1, 2]), 32)
    """
    named = [(name, value if isinstance(value, np.ndarray) else value.numpy()) for name, value in tensors(batch)]
    layout = _layout(
        tuple((name, array.shape if shapes is None else shapes[name], array.dtype) for name, array in named)
    )
    buffer = torch.empty(layout.size, dtype=torch.uint8, pin_memory=pinned)
    memory, views = buffer.numpy(), {}
    for (name, array), part in zip(named, layout.parts, strict=True):
        views[name] = view = memory[part.first : part.last].view(part.kind).reshape(part.shape)
        if array.shape == part.shape:
            view[...] = array
        else:
            view[...] = name in ONES
            view[tuple(map(slice, array.shape))] = array
    return _batch(views, buffer, layout)


@lru_cache(KNOWN)
def _layout(named: tuple[tuple[str, tuple[int, ...], np.dtype[Any]], ...]) -> Layout:
    parts, first = [], 0
    for name, shape, kind in named:
        size = int(np.prod(shape)) * kind.itemsize
        number = torch.from_numpy(np.empty(0, dtype=kind)).dtype
        parts.append(PlacedTensor(name, tuple(shape), kind, number, first, first + size))
        first += -(-size // ALIGNED) * ALIGNED
    return Layout(tuple(parts), first)


def _batch(views: Mapping[str, Any], buffer: Tensor, layout: Layout) -> PackedBatch:
    more = {name.removeprefix("more."): view for name, view in views.items() if name not in FIELDS}
    return PackedBatch(**{name: views.get(name) for name in FIELDS}, more=more, buffer=buffer, layout=layout)


def tensors(batch: Batch) -> Iterator[tuple[str, Any]]:
    """The tensors of a batch by name, those of `more` as more.NAME."""
    for name in FIELDS:
        value = getattr(batch, name)
        if value is not None:
            yield name, value
    for name, value in batch.more.items():
        yield f"more.{name}", value


def shapes_of(batch: Batch) -> Any:
    """Shapes and dtypes of a batch's tensors by name, equal where they are, and as a key of a dictionary."""
    if isinstance(batch, PackedBatch):
        return batch.layout
    return tuple((name, tuple(value.shape), value.dtype) for name, value in tensors(batch))


def copy_into(batch: Batch, other: Batch) -> None:
    """Copy a batch's numbers over those of one with the same shapes, in the background if memory is pinned."""
    if isinstance(batch, PackedBatch) and isinstance(other, PackedBatch):
        batch.buffer.copy_(other.buffer, non_blocking=True)
        return
    for (_, view), (_, value) in zip(tensors(batch), tensors(other.to("cpu")), strict=True):
        view.copy_(value, non_blocking=True)


def duplicate(batch: Batch, device: torch.device) -> Batch:
    """A copy on a device that shares no memory with the batch."""
    if isinstance(batch, PackedBatch):
        return batch.over(batch.buffer.to(device, copy=True))
    moved = {name: value.to(device, copy=True) for name, value in tensors(batch)}
    more = {name: moved.pop(f"more.{name}") for name in batch.more}
    return replace(batch, **moved, more=more)
