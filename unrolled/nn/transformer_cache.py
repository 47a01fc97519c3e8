"""Keys and values of past steps at fixed places, for steps whose tensors keep their shapes.

W hypotheses of one input attend to all keys of that input under a mask: when hypotheses are replaced by others of the
same input, only the table of their ancestors moves, not their keys and values.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from unrolled.nn.attention import MultiHeadAttention

Kept = tuple[Tensor, Tensor]
"""Keys and values (B, N, S, d) of one layer."""


class FixedState(NamedTuple):
    """A stack between two steps: B inputs with W hypotheses each, of at most L steps."""

    position: Tensor  # (B·W,), the number of steps so far
    ancestors: Tensor  # (B·W, L), the hypothesis (0 to W - 1) that made each past step; -1: not reached yet
    kept: tuple[Kept, ...]  # of each layer, (B, N, W, L, d); steps write to them in place
    memory: tuple[Kept, ...] = ()  # of each layer that looks at a memory, (B, N, S, d)
    memory_mask: Tensor | None = None  # (B, S)


class FixedKeys(NamedTuple):
    """The keys and values of one layer in one step: the place of the new ones, and what each hypothesis sees."""

    keys: Tensor  # (B, N, W, L, d)
    values: Tensor
    position: Tensor  # (B·W,)
    mask: Tensor  # (B, W, W·L)

    def attend(self, attention: MultiHeadAttention, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Self-attention of one step, (B·W, N, 1, d) each → (B·W, 1, E)."""
        batch, heads, width, _, size = self.keys.shape
        place = self.position.view(batch, 1, width, 1, 1).expand(batch, heads, width, 1, size)
        for kept, new in ((self.keys, keys), (self.values, values)):
            kept.scatter_(3, place, self._grouped(new)[..., None, :].to(kept.dtype))
        query = self._grouped(query).to(self.keys.dtype)
        seen = attention.attend(query, self.keys.flatten(2, 3), self.values.flatten(2, 3), self.mask, full=True)
        return seen.reshape(batch * width, 1, -1)

    def _grouped(self, x: Tensor) -> Tensor:
        """(B·W, N, 1, d) → (B, N, W, d)."""
        batch, heads, width, _, size = self.keys.shape
        return x.reshape(batch, width, heads, size).transpose(1, 2)


def entered(state: FixedState) -> FixedState:
    """The state in which each hypothesis has the next step as its own."""
    batch, _, width, _, _ = state.kept[0][0].shape
    own = torch.arange(width, device=state.position.device).repeat(batch)
    return state._replace(ancestors=state.ancestors.scatter(1, state.position[:, None], own[:, None]))


def visible_steps(state: FixedState) -> Tensor:
    """The mask (B, W, W·L) of steps that each hypothesis sees."""
    batch, _, width, length, _ = state.kept[0][0].shape
    own = torch.arange(width, device=state.position.device)
    return (state.ancestors.view(batch, width, 1, length) == own[:, None]).flatten(2)
