"""Batches in one buffer: one copy moves all their tensors to a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from unrolled.data.batching.batch import Batch

ALIGNED = 16  # bytes
FIELDS = tuple(field.name for field in fields(Batch) if field.name != "more")


@dataclass(frozen=True)
class PackedBatch(Batch):
    """A batch whose numbers also stand in `buffer`, one tensor after the other; on a GPU its tensors are views of it.

    On the CPU they are not: most batches are copied to a GPU and never looked at again, and views take time to make.
    """

    buffer: Any = None  # (bytes,) uint8

    def to(self, device: torch.device | str) -> Batch:
        """The batch on a device, by one copy."""
        place = torch.device(device)
        return self if self.buffer.device == place else self.over(self.buffer.to(place, non_blocking=True))

    def over(self, buffer: Tensor) -> PackedBatch:
        """A batch with the same shapes whose tensors are views of another buffer."""
        moved, first = {}, 0
        for name, value in tensors(self):
            size = value.numel() * value.element_size()
            moved[name] = buffer[first : first + size].view(value.dtype).view(value.shape)
            first += _aligned(size)
        more = {name: moved[f"more.{name}"] for name in self.more}
        return PackedBatch(**{name: moved.get(name) for name in FIELDS}, more=more, buffer=buffer)


def packed(batch: Batch, *, pinned: bool) -> PackedBatch:
    """A batch on the CPU with a copy in one buffer; `pinned` memory can be copied to a GPU in the background.

    >>> batch = packed(Batch(torch.tensor([[1, 2]]), torch.tensor([3.0])), pinned=False)
    >>> batch.inputs, batch.buffer.view(torch.int64)[:2], len(batch.buffer)
    (tensor([[1, 2]]), tensor([1, 2]), 32)
    """
    arrays = [value.numpy() for _, value in tensors(batch)]
    buffer = torch.empty(sum(_aligned(array.nbytes) for array in arrays), dtype=torch.uint8, pin_memory=pinned)
    memory, first = buffer.numpy(), 0
    for array in arrays:
        memory[first : first + array.nbytes].view(array.dtype)[:] = array.reshape(-1)
        first += _aligned(array.nbytes)
    given = {name: getattr(batch, name) for name in FIELDS}
    return PackedBatch(**given, more=batch.more, buffer=buffer)


def tensors(batch: Batch) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a batch by name, those of `more` as more.NAME."""
    for name in FIELDS:
        value = getattr(batch, name)
        if value is not None:
            yield name, value
    for name, value in batch.more.items():
        yield f"more.{name}", value


def copy_into(batch: Batch, other: Batch) -> None:
    """Copy a batch's numbers over those of one with the same shapes, in the background if memory is pinned."""
    if isinstance(batch, PackedBatch) and isinstance(other, PackedBatch):
        batch.buffer.copy_(other.buffer, non_blocking=True)
        return
    for (_, view), (_, value) in zip(tensors(batch), tensors(other), strict=True):
        view.copy_(value, non_blocking=True)


def duplicate(batch: Batch, device: torch.device) -> Batch:
    """A copy on a device that shares no memory with the batch."""
    if isinstance(batch, PackedBatch):
        return batch.over(batch.buffer.to(device, copy=True))
    moved = {name: value.to(device, copy=True) for name, value in tensors(batch)}
    more = {name: moved.pop(f"more.{name}") for name in batch.more}
    return replace(batch, **moved, more=more)


def _aligned(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED
