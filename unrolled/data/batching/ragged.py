"""Ragged: sequences of different lengths in one array."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.integer[Any]]  # numbers of examples


class Ragged:
    """Sequences of whole numbers, end to end. Tables of some of them are gathered without a loop over rows.

    `values` are (N,), or (N, F) with F numbers a step; `lengths` are those of the sequences.

    >>> words = Ragged(np.array([5, 6, 7, 8]), [3, 0, 1])
    >>> words.padded(np.array([2, 0])).tolist(), words.padded(np.array([1])).tolist()
    ([[8, 0, 0], [5, 6, 7]], [[0]])
    >>> words.flat(np.array([2, 0])).tolist(), words.row(0).tolist()
    ([8, 5, 6, 7], [5, 6, 7])
    """

    def __init__(self, values: NDArray[np.integer[Any]], lengths: Sequence[int] | NDArray[np.integer[Any]]) -> None:
        self.lengths = np.asarray(lengths, dtype=np.int64)
        self._starts = np.cumsum(self.lengths) - self.lengths
        self._values = values if len(values) else np.zeros((1, *values.shape[1:]), dtype=values.dtype)  # to point at

    @classmethod
    def of(cls, sequences: Iterable[Sequence[int] | NDArray[np.integer[Any]]]) -> Ragged:
        """The sequences of a list."""
        arrays = [np.asarray(one, dtype=np.int32) for one in sequences]
        return cls(np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int32), [len(one) for one in arrays])

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def rows(self) -> NDArray[np.int64]:
        """The numbers of all sequences."""
        return np.arange(len(self))

    def row(self, number: int) -> NDArray[np.integer[Any]]:
        """One sequence."""
        first = self._starts[number]
        return self._values[first : first + self.lengths[number]]

    def padded(self, rows: Rows, extra: int = 0) -> NDArray[np.int64]:
        """Some sequences side by side with zeros after them, (B, longest + extra, …); at least one step wide."""
        lengths = self.lengths[rows]
        steps = np.arange(max(1, int(np.maximum.reduce(lengths, initial=0)) + extra))[:, None]
        table = self._values.take(self._starts[rows] + steps, axis=0, mode="clip")  # (T, B, …): long rows are faster
        real = steps < lengths
        table *= real if table.ndim == 2 else real[..., None]
        return table.swapaxes(0, 1).astype(np.int64, order="C")

    def ended(self, rows: Rows, end: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Some sequences with an end token each, (B, T), and their lengths with it, (B,).

        >>> table, lengths = Ragged.of([[5, 6], []]).ended(np.array([1, 0]), 9)
        >>> table.tolist(), lengths.tolist()
        ([[9, 0, 0], [5, 6, 9]], [1, 3])
        """
        table, lengths = self.padded(rows, extra=1), self.lengths[rows]
        table[np.arange(len(rows)), lengths] = end
        return table, lengths + 1

    def flat(self, rows: Rows) -> NDArray[np.integer[Any]]:
        """Some sequences end to end."""
        lengths = self.lengths[rows]
        before = np.cumsum(lengths) - lengths
        return self._values[np.repeat(self._starts[rows] - before, lengths) + np.arange(int(lengths.sum()))]
