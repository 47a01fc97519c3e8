"""Windows of ragged sequences of vectors, for truncated backpropagation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unrolled.data.batching.batch import Batch


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
        self.pieces = [sequence for sequence in sequences if len(sequence)]
        rows = min(rows, len(self.pieces))
        self._pieces_of_row: list[list[int]] = [[] for _ in range(rows)]
        loads = np.zeros(rows, dtype=np.int64)
        for piece in sorted(range(len(self.pieces)), key=lambda i: -len(self.pieces[i])):
            row = int(loads.argmin())
            self._pieces_of_row[row].append(piece)
            loads[row] += self._windows(piece)
        self._length = int(loads.max(initial=0))
        self._epoch = 0
        self._plan = self._lay_out(0)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Batch:
        import torch

        parts: list[FrameSequence | None] = []
        resets = torch.zeros(len(self._pieces_of_row), dtype=torch.bool)
        for row, plan in enumerate(self._plan):
            if index < len(plan):
                piece, start = plan[index]
                parts.append(self.pieces[piece].cut(start, start + self.window))
                resets[row] = start == 0
            else:
                parts.append(None)
        lengths = torch.tensor([0 if part is None else len(part) for part in parts])
        steps = int(lengths.max())
        like = self.pieces[0]
        inputs = np.zeros((len(parts), steps, *like.inputs.shape[1:]), dtype=np.float32)
        targets = np.full((len(parts), steps, *like.targets.shape[1:]), np.nan, dtype=np.float32)
        naive = None if like.naive is None else np.full_like(targets, np.nan)
        for row, part in enumerate(parts):
            if part is not None:
                inputs[row, : len(part)], targets[row, : len(part)] = part.inputs, part.targets
                if naive is not None and part.naive is not None:
                    naive[row, : len(part)] = part.naive
        full = bool((lengths == steps).all())
        return Batch(
            torch.from_numpy(inputs),
            torch.from_numpy(targets),
            lengths=None if full else lengths,
            resets=resets,
            more={} if naive is None else {"naive": torch.from_numpy(naive)},
        )

    def order(self, epoch: int) -> None:
        """Switch to the batches of this epoch."""
        if self.seed is not None and epoch != self._epoch:
            self._epoch, self._plan = epoch, self._lay_out(epoch)

    def _windows(self, piece: int) -> int:
        return -(-len(self.pieces[piece]) // self.window)

    def _lay_out(self, epoch: int) -> list[list[tuple[int, int]]]:
        """For each row the (piece, first step) of all its windows."""
        random = None if self.seed is None else np.random.default_rng((self.seed, epoch))
        plan = []
        for pieces in self._pieces_of_row:
            order = pieces if random is None else [pieces[i] for i in random.permutation(len(pieces))]
            plan.append([(piece, k * self.window) for piece in order for k in range(self._windows(piece))])
        return plan


def _pieces(sequence: FrameSequence, longest: int) -> list[FrameSequence]:
    """A sequence in equal pieces of at most `longest` steps."""
    number = max(1, -(-len(sequence) // longest))
    size = -(-len(sequence) // number)
    return [sequence.cut(start, start + size) for start in range(0, len(sequence), max(1, size))]
