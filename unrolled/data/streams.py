"""A long sequence cut into rows that are read side by side: what truncated backpropagation trains on (S14)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from unrolled.data.batch import Batch


class Stream:
    """Batches of consecutive windows of one long token sequence.

    The sequence is cut into `rows` pieces of equal length that lie side by side; batch k holds steps k·T … k·T + T - 1
    of each, so that the state after batch k is the state before batch k + 1. Batches are made from their number alone:
    a run that stops can go on where it was. The input is the sequence shifted by one, with `start` before the first
    token, so that every token is a target once.

    With `whole` the last row may be shorter, and every token is there; without, the few that do not fill a row are left
    out and all rows are full.

    >>> stream = Stream(np.arange(1, 8), rows=2, steps=2, start=0, whole=True)
    >>> len(stream), stream[0].inputs.tolist(), stream[0].targets.tolist()
    (2, [[0, 1], [4, 5]], [[1, 2], [5, 6]])
    >>> stream[1].targets.tolist(), stream[1].lengths.tolist()
    ([[3, 4], [7, 0]], [2, 1])
    """

    def __init__(self, ids: NDArray[np.integer], *, rows: int, steps: int, start: int, whole: bool) -> None:
        self.steps, self.start, self.whole = steps, start, whole
        self.rows = min(rows, len(ids)) if whole else rows
        self.row_length = -(-len(ids) // self.rows) if whole else len(ids) // self.rows
        room = self.rows * self.row_length
        self.tokens = min(len(ids), room)  # the number of targets in one pass
        ids = np.pad(ids, (0, room - len(ids))) if len(ids) < room else ids[:room]
        self._table = ids.reshape(self.rows, self.row_length)  # (B, steps of a row); a view where nothing is padded

    def __len__(self) -> int:
        return -(-self.row_length // self.steps)

    def __getitem__(self, index: int) -> Batch:
        begin = index * self.steps
        end = min(begin + self.steps, self.row_length)
        targets = torch.from_numpy(self._table[:, begin:end].astype(np.int64))
        before = self._before() if begin == 0 else self._table[:, begin - 1 : begin]  # (B, 1)
        inputs = torch.cat([torch.from_numpy(before.astype(np.int64)), targets[:, :-1]], dim=1)
        lengths = self.tokens - begin - self.row_length * torch.arange(self.rows)
        lengths = lengths.clamp(0, end - begin)
        full = bool((lengths == end - begin).all())
        return Batch(inputs, targets, lengths=None if full else lengths)

    def order(self, epoch: int) -> None:
        """A text has one order."""

    def _before(self) -> NDArray[np.integer]:
        """The token before each row: the last one of the row above."""
        return np.concatenate([[self.start], self._table[:-1, -1]])[:, None]
