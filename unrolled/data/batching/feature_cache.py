"""Features of the examples, computed once on all cores and cached while they fit into memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data.readers.media.archives import Medium
from unrolled.errors import UserError

Features = NDArray[Any]
AHEAD = 64  # examples given to the workers at a time


class FeatureCache:
    """The features (T, …) of every input by its number; `lengths` has their T.

    All are computed once at the start, so that unreadable files are known before training. Features beyond `limit`
    bytes, or of more than `longest` steps, are not cached but computed again at each use. `medium` gives the file of
    an input; an error is raised if it changes in between.

    >>> store = FeatureCache([3, 1], lambda steps: np.zeros((steps, 2)), limit=20)
    >>> store.lengths.tolist(), store[0].shape, store.kept
    ([3, 1], (3, 2), 1)
    """

    def __init__(
        self,
        inputs: Sequence[Any],
        make: Callable[[Any], Features],
        limit: int,
        longest: int | None = None,
        medium: Callable[[Any], Medium | None] = lambda one: None,
    ) -> None:
        self.inputs, self.make, self.medium = inputs, make, medium
        self._kept: dict[int, Features] = {}
        self._stamps = [one and one.stamp() for one in map(medium, inputs)]
        lengths, used = [], 0
        with ThreadPoolExecutor(worker_threads()) as pool:
            for first in range(0, len(inputs), AHEAD):
                for number, features in enumerate(pool.map(make, inputs[first : first + AHEAD]), first):
                    lengths.append(len(features))
                    wanted = longest is None or len(features) <= longest
                    if wanted and used + features.nbytes <= limit:
                        used += features.nbytes
                        self._kept[number] = features
        self.lengths = np.array(lengths, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, number: int) -> Features:
        kept = self._kept.get(number)
        if kept is not None:
            return kept
        medium = self.medium(self.inputs[number])
        if medium is not None and medium.stamp() not in (
            None,
            self._stamps[number],
        ):  # the reader reports a missing file
            raise UserError(
                f"{medium} changed during training.",
                "Restore it and resume the run, or start a new one.",
            )
        return self.make(self.inputs[number])

    @property
    def kept(self) -> int:
        """The number of inputs with cached features."""
        return len(self._kept)


def worker_threads() -> int:
    """Threads that prepare data: one per core, eight at most."""
    return min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
