"""Batches padded to a small set of shapes, so that each shape comes often: CUDA graphs are recorded by shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unrolled.data.batching.batch import Batch
from unrolled.data.batching.buckets import RowBuckets
from unrolled.data.batching.packed import packed, tensors
from unrolled.data.batching.prefetch import IndexedBatches, Prefetcher

LEAST_STEP = 2  # sizes are multiples of it
GPU_THREADS = 2  # that make batches beside the one that feeds a GPU: they compete for Python's lock
ROW_PARTS = 32  # rows follow from the lengths where a batch has so many tokens: finer steps add few shapes


def rounded(size: int, parts: int = 8) -> int:
    """The next size of the set: even, and from 32 on in steps of an eighth of the power of two below it.

    >>> [rounded(size) for size in (1, 8, 9, 21, 100, 130, 1000)]
    [2, 8, 10, 22, 104, 144, 1024]
    """
    step = max(LEAST_STEP, (1 << (size.bit_length() - 1)) // parts)
    return -(-size // step) * step


@dataclass(frozen=True)
class Padding:
    """The fields of a task's batches that can be padded with zeros, since lengths tell what is real.

    `timed` have the steps of the inputs, (B, T, …), besides the inputs; `targets` have those of the targets, (B, L, …),
    besides the targets. `words` are `spellings` (W, L) with their lengths. `rows` adds rows without a target.
    """

    timed: tuple[str, ...] = ()
    targets: tuple[str, ...] | None = None  # None: targets have no steps of their own
    words: bool = False
    rows: bool = False
    ends: tuple[str, ...] = ()  # one-dimensional, with weights of their own: zeros at their ends count for nothing

    def __call__(self, batch: Batch) -> Batch:
        """The batch with more padding."""
        return packed(batch, pinned=False, shapes=self.shapes(batch)).to("cpu")

    def shapes(self, batch: Batch) -> dict[str, tuple[int, ...]]:
        """The padded shapes of a batch's tensors, by the names of `tensors`."""
        found = {name: tuple(value.shape) for name, value in tensors(batch)}
        if batch.lengths is not None:
            _lengthen(found, ("inputs", *map(_name, self.timed)))
        if self.targets is not None:
            _lengthen(found, ("targets", *map(_name, self.targets)))
        if self.words and "more.spellings" in found:
            _lengthen(found, ("more.spellings",))
            for name in ("more.spellings", "more.spelling_lengths"):
                found[name] = (rounded(found[name][0]), *found[name][1:])
        for name in map(_name, self.ends):
            if name in found:
                found[name] = (rounded(found[name][0]),)
        if self.rows:
            assert batch.lengths is not None
            rows = rounded(len(batch.inputs), ROW_PARTS)
            found = {name: (max(rows, shape[0]), *shape[1:]) for name, shape in found.items()}
        return found


def _name(field: str) -> str:
    """An entry of `timed`, `targets` or `ends` as `tensors` names it."""
    return field if field == "targets" else f"more.{field}"


def _lengthen(shapes: dict[str, tuple[int, ...]], names: Sequence[str]) -> None:
    """Round the steps of some tensors up; the first of them has as many as the others."""
    steps = rounded(shapes[names[0]][1])
    for name in names:
        if name in shapes and steps > shapes[name][1]:
            rows, _, *rest = shapes[name]
            shapes[name] = (rows, steps, *rest)


class Prepared:
    """The same batches, each prepared by a function; see `Prefetcher`."""

    def __init__(self, batches: IndexedBatches, prepare: Callable[[Batch], Batch]) -> None:
        self.batches, self.prepare = batches, prepare
        straight = isinstance(batches, RowBuckets) and type(batches).__getitem__ is RowBuckets.__getitem__
        self._make: Callable[[int], Batch] = batches.arrays if straight else batches.__getitem__  # type: ignore[attr-defined]

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Batch:
        return self.prepare(self._make(index))

    def order(self, epoch: int) -> None:
        self.batches.order(epoch)


def ahead_of_gpu(batches: IndexedBatches, padding: Padding | None) -> IndexedBatches:
    """The batches for a GPU: padded to few shapes, and packed into page-locked memory.

    Updates run in the background, so that the next batches are made while the GPU works. A thread of their own would
    take as much of Python's lock from the one that feeds the GPU as it saves. A task that prefetches by itself, since
    its batches take longer, has two.
    """

    def prepare(batch: Batch) -> Batch:
        return packed(batch, pinned=True, shapes=None if padding is None else padding.shapes(batch))

    if isinstance(batches, Prefetcher):
        return Prefetcher(Prepared(batches.batches, prepare), threads=GPU_THREADS)
    return Prepared(batches, prepare)
