"""n-gram blocking: no n tokens in a row occur twice."""

from __future__ import annotations

import torch
from torch import Tensor

from unrolled.search.scorers.scorer import Scorer, State


class NoRepeats(Scorer):
    """Forbids tokens that would make an n-gram occur a second time; the state is what was written, (B, T).

    >>> NoRepeats(3, 5).scores(torch.tensor([[1, 2, 3, 1, 2]])).tolist()
    [[True, True, True, False, True]]
    """

    only_lowers = True

    def __init__(self, size: int, vocabulary: int) -> None:
        self.size, self.vocabulary = size, vocabulary

    def initial(self, rows: int) -> Tensor:
        return torch.empty(rows, 0, dtype=torch.int64)

    def scores(self, state: State) -> Tensor:
        rows, steps = state.shape
        counts = torch.zeros(rows, self.vocabulary, dtype=torch.int32, device=state.device)
        if steps < self.size:
            return ~counts.bool()
        windows = state.unfold(1, self.size, 1)  # (B, T - size + 1, size)
        last = state[:, steps - self.size + 1 :]  # (B, size - 1)
        same = (windows[..., :-1] == last[:, None]).all(-1)
        return counts.scatter_add_(1, windows[..., -1], same.int()) == 0

    def advance(self, state: State, tokens: Tensor) -> Tensor:
        return torch.cat([state, tokens[:, None]], dim=1)
