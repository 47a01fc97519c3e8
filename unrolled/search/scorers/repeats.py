"""n-gram blocking: no n tokens in a row occur twice."""

from __future__ import annotations

import numpy as np

from unrolled.search.arrays import Array, arrays_of
from unrolled.search.scorers.scorer import Scorer, State


class NoRepeats(Scorer):
    """Forbids tokens that would make an n-gram occur a second time; the state is what was written, (B, T).

    >>> import torch
    >>> NoRepeats(3, 5).scores(torch.tensor([[1, 2, 3, 1, 2]])).tolist()
    [[True, True, True, False, True]]
    """

    only_lowers = True

    def __init__(self, size: int, vocabulary: int) -> None:
        self.size, self.vocabulary = size, vocabulary

    def initial(self, rows: int) -> Array:
        return np.empty((rows, 0), dtype=np.int64)

    def scores(self, state: State) -> Array:
        rows, steps = state.shape
        arrays = arrays_of(state)
        if steps < self.size:
            return ~arrays.zeros((rows, self.vocabulary), "bool")
        windows = arrays.windows(state, self.size)  # (B, T - size + 1, size)
        last = state[:, steps - self.size + 1 :]  # (B, size - 1)
        same = (windows[..., :-1] == last[:, None]).all(-1)
        return arrays.counted(windows[..., -1], same, self.vocabulary) == 0

    def advance(self, state: State, tokens: Array) -> Array:
        arrays = arrays_of(tokens)
        return arrays.cat([arrays.moved(state), tokens[:, None]], 1)
