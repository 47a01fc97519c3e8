"""Models small enough to know everything about: tables of transition probabilities."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from unrolled.search import TokenStep


class Markov:
    """The next token depends on the last two, or on the last one where the table is (V, V).

    The token before last is carried as state, so that a state that loses its row changes the result. Where there is
    a memory (B,), each row's log-probabilities are rolled by it. Looking up numbers is exact in any batch.
    """

    def __init__(self, table: Tensor) -> None:
        self.table = table.log_softmax(-1)  # (V, V) or (V, V, V)
        self.batches: list[int] = []  # how many rows each step had

    def start(self, memory: Any) -> Any:
        return {"previous": None, "extra": [memory]}

    def step(self, tokens: Tensor, state: Any) -> TokenStep:
        assert tokens.dtype == torch.int64
        assert not torch.is_grad_enabled()
        self.batches.append(len(tokens))
        previous = torch.zeros_like(tokens) if state["previous"] is None else state["previous"][0]
        log_probs = self.table[tokens] if self.table.dim() == 2 else self.table[previous, tokens]  # (B, V)
        (memory,) = state["extra"]
        if memory is not None:
            places = (torch.arange(log_probs.shape[-1]) - memory[:, None]) % log_probs.shape[-1]
            log_probs = log_probs.gather(-1, places)
        return TokenStep(log_probs, {"previous": (tokens,), "extra": [memory]})


class Prefilled(Markov):
    """The same, with prompts read in one call."""

    prefills = 0

    def prefill(self, tokens: Tensor, lengths: Tensor, state: Any) -> TokenStep:
        self.prefills += 1
        rows = torch.arange(len(tokens))
        assert all((tokens[row, length:] == 0).all() for row, length in enumerate(lengths.tolist()))
        before = torch.where(lengths > 1, tokens[rows, (lengths - 2).clamp(min=0)], 0)
        step = self.step(tokens[rows, lengths - 1], {"previous": (before,), "extra": state["extra"]})
        self.batches.pop()
        return step


class Fixed:
    """Gives the same rows of log-probabilities whatever it reads."""

    def __init__(self, log_probs: Tensor) -> None:
        self.log_probs = log_probs

    def start(self, memory: Any) -> Any:
        return None

    def step(self, tokens: Tensor, state: Any) -> TokenStep:
        return TokenStep(self.log_probs, state)
