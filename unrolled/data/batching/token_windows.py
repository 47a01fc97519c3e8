"""Windows of one long token sequence: contiguous in rows side by side, or shuffled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unrolled.data.batching.batch import Batch
from unrolled.data.batching.sharing import WHOLE


class ContiguousWindows:
    """Batches of consecutive windows of one long token sequence.

    The sequence is cut into `rows` pieces of equal length; batch k holds steps k·T … k·T + T - 1 of each, so that the
    state after batch k is the state before batch k + 1. Batches depend on their index alone, so that a stopped run can
    continue. The input is the sequence shifted by one, with `start` before the first
    token, so that every token is a target once.

    With `whole` the last row may be shorter and no token is lost; without, all rows are full and the remainder is
    dropped.

    With a `seed` the lengths of the windows vary from epoch to epoch (`varied_cuts`); their number stays.

    >>> stream = ContiguousWindows(np.arange(1, 8), rows=2, steps=2, start=0, whole=True)
    >>> len(stream), stream[0].inputs.tolist(), stream[0].targets.tolist()
    (2, [[0, 1], [4, 5]], [[1, 2], [5, 6]])
    >>> stream[1].targets.tolist(), stream[1].lengths.tolist()
    ([[3, 4], [7, 0]], [2, 1])
    """

    def __init__(
        self, ids: NDArray[np.integer], *, rows: int, steps: int, start: int, whole: bool, seed: int | None = None
    ) -> None:
        self.steps, self.start, self.whole, self.seed = steps, start, whole, seed
        self.rows = min(rows, len(ids)) if whole else rows
        self.row_length = -(-len(ids) // self.rows) if whole else len(ids) // self.rows
        room = self.rows * self.row_length
        self.tokens = min(len(ids), room)  # the number of targets in one pass
        ids = np.pad(ids, (0, room - len(ids))) if len(ids) < room else np.asarray(ids)[:room]
        self._table = ids.reshape(self.rows, self.row_length)  # (B, steps of a row); a view where nothing is padded
        self._cuts = np.append(np.arange(0, self.row_length, steps), self.row_length)
        self._epoch: int | None = None
        self.share = WHOLE  # of one of several processes: some of the rows
        self.order(0)

    def __len__(self) -> int:
        return len(self._cuts) - 1

    def __getitem__(self, index: int) -> Batch:
        return self.arrays(index).to("cpu")

    def arrays(self, index: int) -> Batch:
        """The batch as NumPy's arrays."""
        begin, end = int(self._cuts[index]), int(self._cuts[index + 1])
        own = self.share.lanes(self.rows)
        targets = self._table[own, begin:end].astype(np.int64)
        inputs = np.empty_like(targets)
        inputs[:, 0] = (self._before() if begin == 0 else self._table[:, begin - 1])[own]
        inputs[:, 1:] = targets[:, :-1]
        return Batch(inputs, targets, lengths=self._lengths(begin, end))

    def order(self, epoch: int) -> None:
        """Switch to the cuts of this epoch; the order of a text stays."""
        if self.seed is not None and epoch != self._epoch:
            self._cuts = varied_cuts(self.row_length, self.steps, np.random.default_rng((self.seed, epoch)))
            self._epoch = epoch

    def _lengths(self, begin: int, end: int) -> NDArray[np.int64] | None:
        """The real steps of each row; None: all."""
        if self.tokens == self._table.size:
            return None
        rows = np.arange(self.rows)[self.share.lanes(self.rows)]
        lengths = (self.tokens - begin - self.row_length * rows).clip(0, end - begin)
        return None if int(lengths.min()) == end - begin else lengths

    def _before(self) -> NDArray[np.integer]:
        """The token before each row, (B,): the last of the row above."""
        return np.concatenate([[self.start], self._table[:-1, -1]])


def varied_cuts(length: int, steps: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Cuts of a row into chunks of about `steps`; one in twenty has half of that (Merity et al. 2018).

    A chunk's length is normally distributed with a deviation of steps / 14 (5 for the paper's 70) and at least 1; all
    are scaled a little to fill the row, so that their number is always the same.

    >>> varied_cuts(500, 100, np.random.default_rng(0)).tolist()
    [0, 102, 210, 316, 410, 500]
    """
    count = min(length, max(1, round(length / (0.975 * steps))))
    means = np.where(random.random(count) < 0.95, steps, steps / 2)
    more = np.maximum(random.normal(means, steps / 14) - 1, 1e-6).cumsum()  # beyond the 1 that every chunk has
    ends = np.arange(1, count + 1) + np.round(more / more[-1] * (length - count)).astype(np.int64)
    return np.concatenate([[0], ends])


class ShuffledWindows:
    """Batches of independent windows of one long token sequence, to train a Transformer on.

    Every epoch shifts the windows by up to one window and shuffles them; both follow from the seed and the epoch. The
    first input of a window is the token before it, or `start`.

    >>> windows = ShuffledWindows(np.arange(1, 12), rows=2, steps=3, start=0, seed=0)
    >>> windows.order(0)
    >>> len(windows), windows[0].inputs.tolist(), windows[0].targets.tolist()
    (1, [[8, 9, 10], [2, 3, 4]], [[9, 10, 11], [3, 4, 5]])
    """

    def __init__(self, ids: NDArray[np.integer], *, rows: int, steps: int, start: int, seed: int) -> None:
        self.steps, self.start, self.seed, self._ids = min(steps, len(ids)), start, seed, np.asarray(ids)
        self._room = min(self.steps, len(ids) - self.steps + 1)  # possible starts of the first window
        self._count = (len(ids) - self._room + 1) // self.steps  # windows in an epoch, whatever its start
        self.rows = min(rows, self._count)
        self.share = WHOLE  # of one of several processes: some of the rows
        self._epoch: int | None = None
        self.order(0)

    def __len__(self) -> int:
        return self._count // self.rows

    def __getitem__(self, index: int) -> Batch:
        begins = self._begins[index * self.rows : (index + 1) * self.rows][self.share.lanes(self.rows)]
        targets = self._ids[begins[:, None] + np.arange(self.steps)].astype(np.int64)
        inputs = np.empty_like(targets)
        inputs[:, 0] = np.where(begins > 0, self._ids[begins - 1], self.start)
        inputs[:, 1:] = targets[:, :-1]
        return Batch(inputs, targets).to("cpu")

    def order(self, epoch: int) -> None:
        """Switch to the windows of this epoch."""
        if epoch == self._epoch:
            return
        random = np.random.default_rng((self.seed, epoch))
        first = int(random.integers(self._room))
        self._begins = first + self.steps * random.permutation(self._count)
        self._epoch = epoch
