"""One vector for a whole input: the states of its steps, pooled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unrolled.errors import UserError, unknown_name
from unrolled.nn.pooling import Pooling

POOLINGS = ("last", "mean", "max")
AT_ONCE = 64  # inputs in a batch


def check_pooling(pooling: str | None, usual: str, without: str = "", why: str = "") -> str:
    """The pooling that was asked for, or the usual one; `without` is one that this model has not, and why."""
    if pooling is None:
        return usual
    if pooling not in POOLINGS:
        raise unknown_name("pooling", pooling, POOLINGS)
    if pooling == without:
        others = " or ".join(one for one in POOLINGS if one != without)
        raise UserError(f"pooling={pooling}: {why}.", f"Use {others}.")
    return pooling


def pooled(states: Tensor, mask: Tensor, pooling: str, directions: int = 1) -> Tensor:
    """States (B, T, D), mask (B, T) → (B, D); `last` is [h→_T ; h←_1] of two directions."""
    vector: Tensor = Pooling(pooling, states.shape[-1], directions)(states, mask)
    return vector


@torch.no_grad()
def embedded(inputs: Sequence[Any], vectors_of: Callable[[Sequence[Any]], Tensor]) -> NDArray[np.float32]:
    """The vectors (N, D) of inputs, some at once."""
    parts = [vectors_of(inputs[i : i + AT_ONCE]).float().cpu().numpy() for i in range(0, len(inputs), AT_ONCE)]
    if not parts:
        raise UserError("There is no input.", "Give at least one.")
    table: NDArray[np.float32] = np.concatenate(parts)
    return table
