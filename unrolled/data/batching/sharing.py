"""The rows of every batch that one of several processes reads: all follow the same sequence of batches."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from unrolled.data.batching.batch import Batch
from unrolled.data.batching.prefetch import IndexedBatches, Prefetcher
from unrolled.errors import UserError

T = TypeVar("T")


@dataclass(frozen=True)
class Share:
    """Process number `rank` of `world`, and its rows of a batch.

    >>> Share(1, 2).dealt(np.arange(5)), Share(1, 2).lanes(5)
    (array([1, 3]), slice(3, 5, None))
    """

    rank: int = 0
    world: int = 1

    def dealt(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Rows that do not depend on each other: one after the other to each process."""
        return rows if self.world == 1 else rows[self.rank :: self.world]

    def lanes(self, rows: int) -> slice:
        """Rows that go on in the next batch: neighbours, always the same."""
        ends = [-(-rows * rank // self.world) for rank in (self.rank, self.rank + 1)]
        return slice(*ends)


WHOLE = Share()


class SlicedBatches:
    """The rows of a share, cut out of whole batches: for batches that know no better way."""

    def __init__(self, batches: IndexedBatches, share: Share) -> None:
        self.batches, self.share = batches, share

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Batch:
        return sliced(self.batches[index], self.share)

    def order(self, epoch: int) -> None:
        self.batches.order(epoch)

    def is_idle(self, index: int) -> bool:
        return len(self.batches[index].inputs) <= self.share.rank


def sliced(batch: Batch, share: Share) -> Batch:
    """The rows of a share; one row for a process that has none.

    >>> batch = Batch(np.zeros((3, 5)), np.arange(3), more={"weights": np.ones(3)})
    >>> sliced(batch, Share(1, 2)).targets, sliced(batch, Share(3, 4)).targets
    (array([1]), array([0]))
    """
    rows, fields = len(batch.inputs), ("inputs", "targets", "lengths", "resets", "counted")
    for name, value in {**{name: getattr(batch, name) for name in fields}, **batch.more}.items():
        if value is not None and value.shape[:1] != (rows,):
            raise UserError(
                f"{name} of shape {tuple(value.shape)} cannot be shared by several processes: "
                f"expected a value for each of the batch's {rows} rows.",
                "Give the task's batches a `share`, as RowBuckets has, or train in one process.",
            )

    def own(value: Any) -> Any:
        return None if value is None else value[share.rank :: share.world] if rows > share.rank else value[:1]

    return replace(
        batch,
        **{name: own(getattr(batch, name)) for name in fields},
        more={name: own(value) for name, value in batch.more.items()},
    )


def shared_batches(batches: Any, share: Share, *, lanes: bool) -> Any:
    """The batches with the rows of a share; with `lanes` each row goes on in the next batch."""
    if share.world == 1:
        return batches
    inner = batches.batches if isinstance(batches, Prefetcher) else batches
    if not hasattr(inner, "share"):
        if lanes:
            raise UserError(
                f"{type(inner).__name__} carries the state of its rows, and does not say how to share them.",
                "Give it a `share`, as ContiguousWindows has, or train in one process.",
            )
        return SlicedBatches(batches, share)
    rows = getattr(inner, "rows", None)
    if isinstance(rows, int) and rows < share.world:
        raise UserError(
            f"A batch of this data has {rows} {'row' if rows == 1 else 'rows'}, too few for {share.world} processes.",
            f"Use train.batch_size={share.world} or more, more data, or fewer processes (--nproc-per-node).",
        )
    inner.share = share
    return batches


def is_idle(batches: Any, index: int) -> bool:
    """True if a batch has no row for this process, and what it reads is not to be counted."""
    inner = batches.batches if isinstance(batches, Prefetcher) else batches
    found = getattr(inner, "is_idle", None)
    return bool(found(index)) if found is not None else False


def mark_of(batches: Any, index: int) -> int:
    """A checksum of the examples of a batch, the same in all processes that are in step."""
    inner = batches.batches if isinstance(batches, Prefetcher) else batches
    rows = getattr(inner, "rows", None)
    of_batch = rows(index).tobytes() if callable(rows) else b""
    return zlib.crc32(of_batch + b"%d" % index) & 0xFFFFFF


class Together(Protocol):
    """The processes that run the same evaluation."""

    @property
    def share(self) -> Share: ...
    def map(self, number: int, work: Callable[[int], T]) -> Iterator[tuple[int, T]]: ...
    def add_up(self, array: NDArray[np.float64]) -> NDArray[np.float64]: ...


_TOGETHER: ContextVar[Together | None] = ContextVar("together", default=None)


@contextmanager
def evaluated_by(processes: Together) -> Iterator[None]:
    """A block in which an evaluation is the work of several processes: all run it, each does its part."""
    token = _TOGETHER.set(processes)
    try:
        yield
    finally:
        _TOGETHER.reset(token)


def in_turn(number: int, work: Callable[[int], T]) -> Iterator[tuple[int, T]]:
    """(index, work(index)) for each index in order; in an evaluation by several processes each works on some.

    Results are arrays, numbers and texts, in nested tuples, lists and dictionaries.

    >>> list(in_turn(3, lambda index: index * 10))
    [(0, 0), (1, 10), (2, 20)]
    """
    together = _TOGETHER.get()
    if together is not None:
        return together.map(number, work)
    return ((index, work(index)) for index in range(number))


def own_part(number: int) -> range:
    """The indices below `number` that are this process's part of an evaluation whose sums `added_up` completes."""
    together = _TOGETHER.get()
    share = WHOLE if together is None else together.share
    return range(share.rank, number, share.world)


def added_up(array: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of an array over the processes of an evaluation."""
    together = _TOGETHER.get()
    return array if together is None else together.add_up(array)


@contextmanager
def own_lanes(batches: Any) -> Iterator[bool]:
    """A block in which batches whose rows go on have this process's rows alone; False: they have all rows."""
    together = _TOGETHER.get()
    rows = getattr(batches, "rows", None)
    if together is None or not isinstance(rows, int) or rows < together.share.world:
        yield False
        return
    before, batches.share = batches.share, together.share
    try:
        yield True
    finally:
        batches.share = before
