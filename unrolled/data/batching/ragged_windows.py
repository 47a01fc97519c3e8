"""Windows of ragged sequences of vectors, for truncated backpropagation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unrolled.data.batching.batch import Batch
from unrolled.data.batching.sharing import WHOLE

# a window of a row: its first step among all, its length, and if a sequence begins there
WINDOW = np.dtype([("first", np.int64), ("length", np.int64), ("begins", np.bool_)])


@dataclass(frozen=True)
class FrameSequence:
    """Inputs (T, F) and targets (T, …) of a sequence; NaN targets are not scored.

    `naive` is the forecast without a model that scores are compared with, NaN where there is none.
    """

    inputs: NDArray[np.float32]
    targets: NDArray[np.float32]
    naive: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    def cut(self, start: int, stop: int) -> FrameSequence:
        naive = None if self.naive is None else self.naive[start:stop]
        return FrameSequence(self.inputs[start:stop], self.targets[start:stop], naive)


class RaggedWindows:
    """Batches of consecutive windows of ragged sequences.

    Each of the `rows` reads one sequence after the other, `window` steps in a batch; a sequence begins at the
    beginning of a window, marked in `resets` (B,). Rows shorter than their window have `lengths`. With a `seed` every
    epoch shuffles the sequences, and the longest are cut into pieces of at least `least` steps, so that the rows are
    about equally long; without, nothing is cut or shuffled.

    >>> first, second = (FrameSequence(np.ones((t, 1), np.float32), np.ones((t, 1), np.float32)) for t in (5, 2))
    >>> windows = RaggedWindows([first, second], rows=2, window=3)
    >>> len(windows), [batch.lengths.tolist() for batch in (windows[0], windows[1])]
    (2, [[3, 2], [2, 0]])
    """

    def __init__(
        self, sequences: Sequence[FrameSequence], *, rows: int, window: int, seed: int | None = None, least: int = 1
    ) -> None:
        self.window, self.seed = window, seed
        total = sum(map(len, sequences))
        if seed is not None:
            longest = max(-(-total // rows), least)
            sequences = [piece for sequence in sequences for piece in _pieces(sequence, longest)]
        given = [sequence for sequence in sequences if len(sequence)]
        self._flat, sizes = _joined(given), np.array([len(one) for one in given], dtype=np.int64)
        self._firsts = np.cumsum(sizes) - sizes  # of each piece in `_flat`
        self.pieces = [self._flat.cut(first, first + size) for first, size in zip(self._firsts, sizes, strict=True)]
        self.rows = rows = min(rows, len(self.pieces))
        self.share = WHOLE  # of one of several processes: some of the rows
        self._pieces_of_row: list[list[int]] = [[] for _ in range(rows)]
        loads = np.zeros(rows, dtype=np.int64)
        for piece in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
            row = int(loads.argmin())
            self._pieces_of_row[row].append(piece)
            loads[row] += -(-sizes[piece] // window)
        self._length = int(loads.max(initial=0))
        self._epoch = 0
        self._plan = self._lay_out(0)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Batch:
        return self.arrays(index).to("cpu")

    def arrays(self, index: int) -> Batch:
        """The batch as NumPy's arrays."""
        plan, naive = self._plan[index], self._flat.naive
        steps = int(plan["length"].max())  # of all rows: those of a share may have none
        plan = plan[self.share.lanes(self.rows)]
        lengths = plan["length"].copy()
        places = plan["first"][:, None] + np.arange(steps)  # (B, T)
        padding = None if int(lengths.min()) == steps else np.arange(steps) >= lengths[:, None]

        def window(values: NDArray[np.float32], filling: float) -> NDArray[np.float32]:
            table: NDArray[np.float32] = values.take(places, axis=0, mode="clip")
            if padding is not None:
                table[padding] = filling
            return table

        return Batch(
            window(self._flat.inputs, 0.0),
            window(self._flat.targets, np.nan),
            lengths=None if padding is None else lengths,
            resets=plan["begins"].copy(),
            more={} if naive is None else {"naive": window(naive, np.nan)},
        )

    def order(self, epoch: int) -> None:
        """Switch to the batches of this epoch."""
        if self.seed is not None and epoch != self._epoch:
            self._epoch, self._plan = epoch, self._lay_out(epoch)

    def _lay_out(self, epoch: int) -> NDArray[np.void]:
        """The windows of each batch and row, (batches, rows)."""
        random = None if self.seed is None else np.random.default_rng((self.seed, epoch))
        plan = np.zeros((self._length, len(self._pieces_of_row)), dtype=WINDOW)
        for row, pieces in enumerate(self._pieces_of_row):
            order = pieces if random is None else [pieces[i] for i in random.permutation(len(pieces))]
            batch = 0
            for piece in order:
                starts = np.arange(0, len(self.pieces[piece]), self.window)
                there = plan[batch : batch + len(starts), row]
                there["first"] = self._firsts[piece] + starts
                there["length"] = np.minimum(self.window, len(self.pieces[piece]) - starts)
                there["begins"] = starts == 0
                batch += len(starts)
        return plan


def _joined(sequences: Sequence[FrameSequence]) -> FrameSequence:
    """All sequences end to end; the first decides if there is a naive forecast."""
    nothing = np.zeros((0, 0), dtype=np.float32)
    if not sequences:
        return FrameSequence(nothing, nothing)
    naive = None
    if sequences[0].naive is not None:
        each = [np.full_like(one.targets, np.nan) if one.naive is None else one.naive for one in sequences]
        naive = np.concatenate(each, dtype=np.float32)
    inputs, targets = ([getattr(one, name) for one in sequences] for name in ("inputs", "targets"))
    return FrameSequence(np.concatenate(inputs, dtype=np.float32), np.concatenate(targets, dtype=np.float32), naive)


def _pieces(sequence: FrameSequence, longest: int) -> list[FrameSequence]:
    """A sequence in equal pieces of at most `longest` steps."""
    number = max(1, -(-len(sequence) // longest))
    size = -(-len(sequence) // number)
    return [sequence.cut(start, start + size) for start in range(0, len(sequence), max(1, size))]
