"""A long sequence cut into rows that are read side by side: what truncated backpropagation trains on (S14)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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
        self.ids, self.steps, self.whole = ids, steps, whole
        self.rows = min(rows, len(ids)) if whole else rows
        self.row_length = -(-len(ids) // self.rows) if whole else len(ids) // self.rows
        self.start = start

    @property
    def tokens(self) -> int:
        """The number of targets in one pass."""
        return len(self.ids) if self.whole else self.rows * self.row_length

    def __len__(self) -> int:
        return -(-self.row_length // self.steps)

    def __getitem__(self, index: int) -> Batch:
        begin = index * self.steps
        width = min(self.steps, self.row_length - begin)
        inputs = torch.zeros(self.rows, width, dtype=torch.int64)
        targets = torch.zeros(self.rows, width, dtype=torch.int64)
        lengths = torch.zeros(self.rows, dtype=torch.int64)
        for row in range(self.rows):
            first = row * self.row_length + begin
            last = min(first + width, (row + 1) * self.row_length, len(self.ids))
            if last <= first:
                continue
            lengths[row] = last - first
            targets[row, : last - first] = self._tensor(first, last)
            inputs[row, 1 : last - first] = targets[row, : last - first - 1]
            inputs[row, 0] = int(self.ids[first - 1]) if first > 0 else self.start
        full = bool((lengths == width).all())
        return Batch(inputs, targets, lengths=None if full else lengths)

    def _tensor(self, first: int, last: int) -> Tensor:
        return torch.from_numpy(np.asarray(self.ids[first:last], dtype=np.int64))
