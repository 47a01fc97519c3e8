"""Batches padded to a small set of shapes, so that each shape comes often: CUDA graphs are recorded by shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from unrolled.data.batching.batch import Batch
from unrolled.data.batching.packed import packed
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
        more, fields = dict(batch.more), {}
        if batch.lengths is not None:
            steps = rounded(batch.inputs.shape[1])
            fields["inputs"] = _longer(batch.inputs, steps)
            if "targets" in self.timed:
                fields["targets"] = _longer(batch.targets, steps)
            more |= {name: _longer(more[name], steps) for name in self.timed if name in more}
        if self.targets is not None:
            length = rounded(batch.targets.shape[1])
            fields["targets"] = _longer(batch.targets, length)
            more |= {name: _longer(more[name], length) for name in self.targets if name in more}
        if self.words and "spellings" in more:
            spellings = more["spellings"]
            count, longest = rounded(len(spellings)), rounded(spellings.shape[1])
            more["spellings"] = _more_rows(_longer(spellings, longest), count)
            more["spelling_lengths"] = _more_rows(more["spelling_lengths"], count, 1)
        more |= {name: _more_rows(more[name], rounded(len(more[name]))) for name in self.ends if name in more}
        padded = replace(batch, **fields, more=more)
        return _with_rows(padded, rounded(len(batch.inputs), ROW_PARTS)) if self.rows else padded


def _with_rows(batch: Batch, rows: int) -> Batch:
    """More rows: one step of padding each, and no target."""
    assert batch.lengths is not None
    more = {name: _more_rows(value, rows) for name, value in batch.more.items()}
    return replace(
        batch,
        inputs=_more_rows(batch.inputs, rows),
        targets=_more_rows(batch.targets, rows),
        lengths=_more_rows(batch.lengths, rows, 1),
        more=more,
    )


def _longer(x: Tensor, steps: int) -> Tensor:
    if steps <= x.shape[1]:
        return x
    longer = np.zeros((x.shape[0], steps, *x.shape[2:]), dtype=(array := x.numpy()).dtype)
    longer[:, : x.shape[1]] = array
    return torch.from_numpy(longer)


def _more_rows(x: Tensor, rows: int, value: int = 0) -> Tensor:
    if rows <= len(x):
        return x
    more = np.full((rows, *x.shape[1:]), value, dtype=(array := x.numpy()).dtype)
    more[: len(array)] = array
    return torch.from_numpy(more)


class Prepared:
    """The same batches, each prepared by a function; see `Prefetcher`."""

    def __init__(self, batches: IndexedBatches, prepare: Callable[[Batch], Batch]) -> None:
        self.batches, self.prepare = batches, prepare

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Batch:
        return self.prepare(self.batches[index])

    def order(self, epoch: int) -> None:
        self.batches.order(epoch)


def ahead_of_gpu(batches: IndexedBatches, padding: Padding | None) -> IndexedBatches:
    """The batches for a GPU: padded to few shapes, and packed into page-locked memory.

    Updates run in the background, so that the next batches are made while the GPU works. A thread of their own would
    take as much of Python's lock from the one that feeds the GPU as it saves. A task that prefetches by itself, since
    its batches take longer, has two.
    """

    def prepare(batch: Batch) -> Batch:
        return packed(batch if padding is None else padding(batch), pinned=True)

    if isinstance(batches, Prefetcher):
        return Prefetcher(Prepared(batches.batches, prepare), threads=GPU_THREADS)
    return Prepared(batches, prepare)
