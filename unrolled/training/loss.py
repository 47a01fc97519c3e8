"""Loss: a sum over scored steps, their number, and the state to continue from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unrolled.data import Batch
from unrolled.kernels.vocabulary.reference import wide
from unrolled.kernels.vocabulary.scores import linear_cross_entropy

IGNORED = -100  # a target that is not scored


@dataclass(frozen=True)
class Loss:
    """The summed loss of the scored steps, their number, and the state after the last step.

    Sums and counts of parts add up to those of the whole: padding and cutting change nothing. A `penalty` is added to
    the mean for gradients; it is not reported.
    """

    sum: Tensor
    count: Tensor
    state: Any = None
    penalty: Tensor | None = None


def cross_entropy(logits: Tensor, batch: Batch, state: Any = None) -> Loss:
    """Token cross-entropy in nats, summed over the batch's scored steps: logits (B, T, V)."""
    targets = batch.targets
    if batch.lengths is None and batch.counted is None:
        total = F.cross_entropy(wide(logits.flatten(0, 1)), targets.flatten(), reduction="sum")
        return Loss(total, torch.tensor(targets.numel()), state)
    scored = batch.scored
    if logits.is_cuda:  # choosing rows would wait for the GPU
        ignored = targets.masked_fill(~scored, IGNORED).flatten()
        total = F.cross_entropy(wide(logits.flatten(0, 1)), ignored, reduction="sum", ignore_index=IGNORED)
        return Loss(total, scored.sum(), state)
    total = F.cross_entropy(wide(logits[scored]), targets[scored], reduction="sum")
    return Loss(total, scored.sum(), state)


def scored_cross_entropy(scores: nn.Linear, features: Tensor, batch: Batch, state: Any = None) -> Loss:
    """`cross_entropy` of the scores of features (B, T, D); on a GPU the scores are never held whole."""
    if not features.is_cuda:
        return cross_entropy(scores(features), batch, state)
    targets, count = batch.targets, torch.tensor(batch.targets.numel())
    if batch.lengths is not None or batch.counted is not None:
        scored = batch.scored
        targets, count = targets.masked_fill(~scored, IGNORED), scored.sum()
    total = linear_cross_entropy(features.flatten(0, 1), scores.weight, scores.bias, targets.flatten())
    return Loss(total, count, state)


def map_state(function: Callable[[Tensor], Tensor], state: Any) -> Any:
    """Apply a function to each tensor of a state: nested tuples, lists and dictionaries of tensors, and None."""
    if isinstance(state, Tensor):
        return function(state)
    if isinstance(state, (tuple, list)):
        return type(state)(map_state(function, part) for part in state)
    if isinstance(state, dict):
        return {key: map_state(function, part) for key, part in state.items()}
    return state


def leaves(state: Any) -> list[Tensor]:
    """All tensors of a state, in order."""
    found: list[Tensor] = []

    def add(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_state(add, state)
    return found


def detached(state: Any) -> Any:
    """The same state without its autograd history."""
    return map_state(Tensor.detach, state)
