"""What a network reads of each example, made once by all cores and kept while it fits into memory."""

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
AHEAD = 64  # examples handed to the workers at a time


class FeatureCache:
    """The features (T, …) of every input by its number; `lengths` has their T.

    All are made once, so that whatever cannot be read is known before training begins. Those beyond `limit` bytes are
    not kept, and made again whenever they are needed; nor are those of more than `longest` steps. `medium` gives the
    file of an input, which must not change in between.

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
        ):  # a lost one is told by its reader
            raise UserError(
                f"{medium} changed while it was trained on.",
                "Put it back as it was and resume the run, or start a new one.",
            )
        return self.make(self.inputs[number])

    @property
    def kept(self) -> int:
        """How many are in memory."""
        return len(self._kept)


def worker_threads() -> int:
    """Threads that prepare data: the cores there are, eight at the most."""
    return min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
