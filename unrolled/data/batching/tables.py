"""Tables: all sequences of a corpus as numbers, made once, from which batches of NumPy's arrays are gathered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from unrolled.data.batching.batch import Batch
from unrolled.data.batching.ragged import Ragged, Rows
from unrolled.text.words import Words

NOTHING = np.zeros(0, dtype=np.float32)  # the targets of sequences without any


class SequenceTable(Protocol):
    """Sequences by their number."""

    @property
    def lengths(self) -> NDArray[np.int64]: ...
    def batch(self, rows: Rows | None = None, targets: NDArray[Any] = NOTHING) -> Batch:
        """A batch of the sequences of these numbers, in this order; None: of all."""
        ...


class TokenTable:
    """Sequences of token ids."""

    def __init__(self, sequences: Sequence[Sequence[int] | NDArray[np.integer]]) -> None:
        self.ids = Ragged.of(sequences)
        self.lengths = self.ids.lengths

    def batch(self, rows: Rows | None = None, targets: NDArray[Any] = NOTHING) -> Batch:
        rows = self.ids.rows if rows is None else rows
        return Batch(self.ids.padded(rows), targets, lengths=self.lengths[rows])


class WordTable:
    """Sentences: the ids of their words, and the letters of each distinct word.

    A batch has the ids (B, T) and in `more`, for `WordInput`, the letters of its distinct words: `spellings` (U, C) in
    the order in which the words come, `spelling_lengths` (U,), and `spelt` (B, T), the number of each word among them.
    Without `letters` it has the ids alone.

    >>> words = Words.train([["the", "cat"]])
    >>> batch = WordTable(words, [["the", "cat"], ["A", "the"]]).batch(np.array([1, 0]))
    >>> batch.inputs.tolist(), batch.more["spelt"].tolist(), batch.more["spelling_lengths"].tolist()
    ([[0, 2], [2, 1]], [[0, 1], [1, 2]], [1, 3, 3])
    """

    def __init__(self, words: Words, sentences: Sequence[Sequence[str]], letters: bool = True) -> None:
        numbers: dict[str, int] = {}
        number_of = numbers.setdefault
        kinds = np.fromiter(
            (number_of(word, len(numbers)) for sentence in sentences for word in sentence), dtype=np.int32
        )
        self._kinds = Ragged(kinds, [len(sentence) for sentence in sentences])  # numbers of distinct words
        ids = words.ids(numbers) if numbers else np.zeros(1, dtype=np.int32)
        self._ids = ids.astype(np.int64)  # of distinct words
        self._spellings = Ragged.of(words.spelling(word) for word in numbers) if letters else None
        self.lengths = self._kinds.lengths

    def batch(self, rows: Rows | None = None, targets: NDArray[Any] = NOTHING) -> Batch:
        rows = self._kinds.rows if rows is None else rows
        lengths = self.lengths[rows]
        kinds = self._kinds.padded(rows)  # (B, T)
        real = np.arange(kinds.shape[1]) < lengths[:, None]
        if self._spellings is None:
            return Batch(self._ids[kinds] * real, targets, lengths=lengths)
        numbers, distinct = numbered(kinds[real], len(self._ids))
        spelt = np.zeros(kinds.shape, dtype=np.int64)
        spelt[real] = numbers
        ids = self._ids[kinds] * real
        if len(distinct):
            spellings, letters = self._spellings.padded(distinct), self._spellings.lengths[distinct]
        else:
            spellings, letters = np.zeros((1, 1), dtype=np.int64), np.ones(1, dtype=np.int64)
        more = {"spellings": spellings, "spelling_lengths": letters, "spelt": spelt}
        return Batch(ids, targets, lengths=lengths, more=more)


class FrameSequences:
    """Sequences of frames of one shape; they stay where they are, and batches copy them."""

    def __init__(self, sequences: Sequence[NDArray[Any]], shape: Sequence[int]) -> None:
        self._sequences, self._shape = sequences, shape
        self.lengths = np.array([len(one) for one in sequences], dtype=np.int64)

    def batch(self, rows: Rows | None = None, targets: NDArray[Any] = NOTHING) -> Batch:
        rows = np.arange(len(self.lengths)) if rows is None else rows
        lengths = self.lengths[rows]
        table = np.zeros((len(rows), max(1, int(lengths.max())), *self._shape), dtype=np.float32)
        for row, (number, length) in enumerate(zip(rows.tolist(), lengths.tolist(), strict=True)):
            table[row, :length] = self._sequences[number]
        return Batch(table, targets, lengths=lengths)


def numbered(kinds: NDArray[np.int64], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers for kinds (N,) below `count` in the order in which they first come, and the kinds in this order.

    >>> numbered(np.array([7, 2, 7, 5]), 8)
    (array([0, 1, 0, 2]), array([7, 2, 5]))
    """
    order = np.arange(len(kinds))
    first = np.empty(count, dtype=np.int64)
    first[kinds[::-1]] = order[::-1]  # of equal kinds the last one written stays: the first of all
    where = first[kinds]
    is_first = where == order
    return (is_first.cumsum() - 1)[where], kinds[is_first]
