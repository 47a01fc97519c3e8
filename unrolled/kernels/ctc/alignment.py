"""CTC's best path for known labels, on the CPU and without torch: in plain Python, and in the C++ core.

The states of a target are a blank, its first label, a blank, its second label, …, a blank.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrolled.kernels.native_module import NATIVE


def align(log_probs: Sequence[Sequence[float]], labels: Sequence[int], blank: int) -> tuple[float, list[int]]:
    """The best path's log-probability and its states, step by step: the reference."""
    states = [labels[s // 2] if s % 2 else blank for s in range(2 * len(labels) + 1)]
    score = [0.0] + [-math.inf] * (len(states) - 1)  # before the first frame
    came: list[list[int]] = []
    for frame in log_probs:
        moves = []
        for s, label in enumerate(states):
            ways = [0] + ([1] if s >= 1 else []) + ([2] if s % 2 and s >= 3 and label != states[s - 2] else [])
            moves.append(max(ways, key=lambda way: (score[s - way], -way)))
        score = [score[s - move] + frame[states[s]] for s, move in enumerate(moves)]
        came.append(moves)
    s = max({len(states) - 1, max(len(states) - 2, 0)}, key=lambda s: (score[s], s))
    found, path = score[s], []
    for moves in reversed(came):
        path.append(s)
        s -= moves[s]
    return found, path[::-1]


def align_native(log_probs: NDArray[np.float32], labels: Sequence[int], blank: int) -> tuple[float, list[int]]:
    """The same in the C++ core; log_probs (T, V). Memory grows with frames plus labels, not with their product."""
    frames: NDArray[np.float32] = np.ascontiguousarray(log_probs, dtype=np.float32)
    target: NDArray[Any] = np.array(labels, dtype=np.int64)
    path = np.empty(len(frames), dtype=np.int32)
    steps, width = frames.shape
    score: float = NATIVE.ctc_align(
        frames.ctypes.data, steps, width, width, blank, target.ctypes.data, len(target), path.ctypes.data
    )
    return score, path.tolist()


def frames_needed(labels: Sequence[int]) -> int:
    """The fewest frames that read as some labels: one for each, and a blank between two equal ones.

    >>> frames_needed([1, 1, 2])
    4
    """
    return len(labels) + sum(a == b for a, b in itertools.pairwise(labels))


def labels_of(path: Sequence[int], labels: Sequence[int] | NDArray[Any], blank: int) -> NDArray[np.int64]:
    """The label, or the blank, of each frame, from the states of a path.

    >>> labels_of([0, 1, 1, 2, 3], [7, 8], 0).tolist()
    [0, 7, 7, 0, 8]
    """
    states = np.asarray(path, dtype=np.int64)
    return np.where(states % 2, np.append(labels, blank).astype(np.int64)[states // 2], blank)


def spans_of(path: Sequence[int], labels: int) -> list[tuple[int, int]]:
    """Of each label its first frame and the one after its last, from the states of a path.

    >>> spans_of([0, 1, 1, 2, 3], 2)
    [(1, 3), (4, 5)]
    """
    states = np.asarray(path, dtype=np.int64)
    shown = 2 * np.arange(labels) + 1
    starts, ends = (np.searchsorted(states, shown, side=side).tolist() for side in ("left", "right"))
    return list(zip(starts, ends, strict=True))
