"""What a hypothesis may write next: forced beginnings, forbidden tokens, no n-gram twice, a constraint of your own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor


class Constraint(Protocol):
    """Which tokens may follow, given those written so far; its state has a row for each hypothesis.

    The end token is one of the tokens: it is allowed where an output may end.
    """

    def initial(self, batch: int) -> Any:
        """The state of `batch` hypotheses that are still empty."""
        ...

    def allowed(self, state: Any) -> Tensor:
        """(B, V), True where a token may be written next."""
        ...

    def advance(self, state: Any, tokens: Tensor) -> Any:
        """The state after each hypothesis wrote its token (B,)."""
        ...

    def reorder(self, state: Any, index: Tensor) -> Any:
        """The states of the hypotheses in `index`; one may be taken more than once, or not at all."""
        ...


def repeated_ngrams(written: Tensor, size: int, vocabulary: int) -> Tensor:
    """Tokens that would make an n-gram occur a second time: written (B, T) → (B, V), True where one would.

    >>> repeated_ngrams(torch.tensor([[1, 2, 3, 1, 2]]), 3, 5).nonzero().tolist()
    [[0, 3]]
    """
    rows, steps = written.shape
    counts = torch.zeros(rows, vocabulary, dtype=torch.int32, device=written.device)
    if steps < size:
        return counts.bool()
    windows = written.unfold(1, size, 1)  # (B, T - size + 1, size)
    last = written[:, steps - size + 1 :]  # (B, size - 1)
    same = (windows[..., :-1] == last[:, None]).all(-1)
    return counts.scatter_add_(1, windows[..., -1], same.int()).bool()


def forced(prefixes: Sequence[Sequence[int]], step: int, device: torch.device) -> Tensor:
    """The token that each row must write at `step`, −1 where it is free: (B,)."""
    return torch.tensor([p[step] if step < len(p) else -1 for p in prefixes], device=device)
