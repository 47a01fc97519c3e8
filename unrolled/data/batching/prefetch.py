"""Prefetching: threads make the next batches while the network computes."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from unrolled.data.batching.batch import Batch
from unrolled.data.batching.feature_cache import worker_threads

LEAST_AHEAD = 4  # batches


class IndexedBatches(Protocol):
    """Batches that depend on their index and the epoch alone."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Batch: ...
    def order(self, epoch: int) -> None: ...


class Prefetcher:
    """The same batches in the same order. A batch depends on its index alone, so that threads cannot change it."""

    def __init__(self, batches: IndexedBatches, threads: int | None = None) -> None:
        """`threads`: by default one for each core, up to eight."""
        self.batches = batches
        self._threads = threads or worker_threads()
        self._pool: ThreadPoolExecutor | None = None
        self._coming: dict[int, Future[Batch]] = {}
        self._epoch: int | None = None

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Batch:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="batches")
        for number in [n for n in self._coming if n < index]:
            self._coming.pop(number).cancel()
        for number in range(index, min(len(self.batches), index + max(LEAST_AHEAD, self._threads + 1))):
            if number not in self._coming:
                self._coming[number] = self._pool.submit(self.batches.__getitem__, number)
        return self._coming.pop(index).result()

    def order(self, epoch: int) -> None:
        """Switch to the batches of this epoch; unfinished ones of another epoch are awaited and dropped."""
        if epoch != self._epoch:
            for future in self._coming.values():
                if not future.cancel():
                    future.exception()
            self._coming = {}
            self._epoch = epoch
        self.batches.order(epoch)
