"""Batches of separate sequences of similar length, shuffled in every epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from unrolled.data.batching.batch import Batch
from unrolled.data.batching.ragged import Rows
from unrolled.data.batching.sharing import WHOLE
from unrolled.errors import UserError

POOL = 50  # examples sorted by length together, in batches
MOST_STEPS = 100_000  # steps in a batch, padding included; longer sequences come in smaller batches

Example = TypeVar("Example")


class RowBuckets:
    """Batches by index; every epoch has the same number of them.

    `gather` makes a batch of the numbers of its examples. Training: the examples are shuffled, those of a pool sorted
    by length and cut into batches, and the batches shuffled, by (seed, epoch) alone. Otherwise (`seed` None) they are
    in order of length, and `rows` gives the examples of a batch. With `batch_tokens` a batch holds the examples that
    fit into this number of steps, padding included, instead of `batch_size`; the pool is all examples. One of several
    processes reads the rows of its `share`.

    >>> from unrolled.data.batching.tables import TokenTable
    >>> tokens = TokenTable([[7, 8], [9], [4, 5, 6]])
    >>> RowBuckets(["b", "a", "c"], tokens.lengths, tokens.batch, batch_size=2)[0].inputs
    array([[9, 0],
           [7, 8]])
    """

    def __init__(
        self,
        examples: Sequence[Any],
        lengths: Sequence[int] | NDArray[np.integer[Any]],
        gather: Callable[[Rows], Batch],
        *,
        batch_size: int,
        seed: int | None = None,
        batch_tokens: int | None = None,
    ) -> None:
        self.examples, self.gather, self.batch_size, self.seed = examples, gather, batch_size, seed
        self.lengths = np.asarray(lengths, dtype=np.int64)
        self._most_steps = batch_tokens or MOST_STEPS
        limit = MOST_STEPS // batch_size if batch_tokens is None else -1
        self._short = np.flatnonzero(self.lengths <= limit)
        self._long = np.flatnonzero(self.lengths > limit)
        self.share = WHOLE
        self._rows = self._batches(0)
        self._epoch = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Batch:
        return self.gather(self._own(index))

    def arrays(self, index: int) -> Batch:
        """The same batch without a detour over tensors, where `gather` is of `in_tensors`."""
        gather = self.gather.arrays if isinstance(self.gather, _InTensors) else self.gather
        return gather(self._own(index))

    def is_idle(self, index: int) -> bool:
        """True if the share has no row of this batch; it reads the first one then."""
        return len(self._rows[index]) <= self.share.rank

    def _own(self, index: int) -> NDArray[np.int64]:
        """The rows of the share."""
        rows = self._rows[index]
        return rows[:1] if self.is_idle(index) else self.share.dealt(rows)

    def rows(self, index: int) -> NDArray[np.int64]:
        """Indices of the examples of batch `index`, in its order, whatever the share."""
        return self._rows[index]

    def order(self, epoch: int) -> None:
        """Switch to the batches of this epoch."""
        if self.seed is not None and epoch != self._epoch:
            self._epoch, self._rows = epoch, self._batches(epoch)

    def _batches(self, epoch: int) -> list[NDArray[np.int64]]:
        if self.seed is None:
            return self._cut(self._by_length(self._short)) + self._cut_long(self._by_length(self._long))
        random = np.random.default_rng((self.seed, epoch))
        short, size = random.permutation(self._short), POOL * self.batch_size
        batches = []
        for start in range(0, len(short), size):
            batches += self._cut(self._by_length(short[start : start + size]))
        batches += self._cut_long(self._by_length(random.permutation(self._long)))
        return [batches[i] for i in random.permutation(len(batches))]

    def _by_length(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return rows[np.argsort(self.lengths[rows], kind="stable")]

    def _cut(self, rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        return [rows[i : i + self.batch_size] for i in range(0, len(rows), self.batch_size)]

    def _cut_long(self, rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Batches of a limited number of steps; the cuts depend on the lengths alone."""
        batches: list[NDArray[np.int64]] = []
        start = 0
        for end in range(1, len(rows) + 1):
            if end == len(rows) or (end + 1 - start) * self.lengths[rows[end]] > self._most_steps:
                batches.append(rows[start:end])
                start = end
        return batches


def in_tensors(gather: Callable[[Rows], Batch]) -> Callable[[Rows], Batch]:
    """The same batches as tensors, to train on and to score; they share the memory of the arrays."""
    return _InTensors(gather)


class _InTensors:
    """A function that makes batches of tensors, and the one that makes those of arrays."""

    def __init__(self, gather: Callable[[Rows], Batch]) -> None:
        self.arrays = gather

    def __call__(self, rows: Rows) -> Batch:
        return self.arrays(rows).to("cpu")


class Buckets(RowBuckets):
    """The same with `collate`, which makes a batch of a list of examples.

    >>> import torch
    >>> def collate(part):
    ...     return Batch(torch.zeros(len(part), 4), torch.zeros(len(part)))
    >>> buckets = Buckets(["aa", "a", "aaa", "aaaa"], [2, 1, 3, 4], collate, batch_size=2)
    >>> len(buckets), [buckets.rows(i).tolist() for i in range(2)]
    (2, [[1, 0], [2, 3]])
    """

    def __init__(
        self,
        examples: Sequence[Example],
        lengths: Sequence[int] | NDArray[np.integer[Any]],
        collate: Callable[[list[Example]], Batch],
        *,
        batch_size: int,
        seed: int | None = None,
        batch_tokens: int | None = None,
    ) -> None:
        def gather(rows: Rows) -> Batch:
            return collate([examples[i] for i in rows])

        super().__init__(examples, lengths, gather, batch_size=batch_size, seed=seed, batch_tokens=batch_tokens)


def held_out(keys: Sequence[Any], fraction: float) -> tuple[list[int], list[int]]:
    """Indices of training and of validation examples; always the same split.

    Examples with equal keys stay on one side, so that no validation input was seen in training.

    >>> train, valid = held_out(["a", "b", "a", "c", "d"], 0.4)
    >>> len(valid) >= 1, {0, 2} <= set(train) or {0, 2} <= set(valid)
    (True, True)
    """
    groups = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    if len(groups) == 1 < len(keys):
        raise UserError(
            f"All {len(keys):,} examples have the same input: none can be held out for validation.",
            "Give examples that differ, or a file to validate on.",
        )
    count = min(max(1, round(fraction * len(groups))), len(groups) - 1)
    chosen = set(np.random.default_rng(0).permutation(len(groups))[:count].tolist())
    valid = [i for i, key in enumerate(keys) if groups[key] in chosen]
    train = [i for i, key in enumerate(keys) if groups[key] not in chosen]
    return train, valid
