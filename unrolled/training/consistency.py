"""Consistency of two passes: every example is twice in a batch, with different dropout, and a penalty pulls the two
distributions together (R-Drop, Liang et al. 2021; for CTC, Yao et al. 2024)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from unrolled.data import Batch
from unrolled.training.loss import Loss

NAME = "consistency"  # of the weight, in a batch's `more`
Example = TypeVar("Example")


def twice(collate: Callable[[list[Example]], Batch], weight: float) -> Callable[[list[Example]], Batch]:
    """Batches whose second half is their first once more, and that hold the weight; with a weight of 0 as they are."""
    if not weight:
        return collate

    def doubled(part: list[Example]) -> Batch:
        batch = collate([*part, *part])
        return replace(batch, more={**batch.more, NAME: torch.tensor(weight)})

    return doubled


def asked(batch: Batch) -> bool:
    """Whether the halves of a batch should agree."""
    return NAME in batch.more


def agreeing(loss: Loss, batch: Batch, log_probs: Tensor, logs_of_rest: Tensor | None = None) -> Loss:
    """The loss, and as its penalty `weight` times what the halves of `log_probs` (2 N, V) differ by.

    That is the mean of KL(p ‖ q) and KL(q ‖ p), ½ Σ (p − q) (log p − log q), summed over the N rows and divided as the
    loss is. Labels that are each true or not have two probabilities: `logs_of_rest` are the logarithms of 1 − p.

    >>> batch = Batch(torch.zeros(2, 1), torch.zeros(2), more={"consistency": torch.tensor(1.0)})
    >>> rows = torch.tensor([[0.75, 0.25], [0.25, 0.75]]).log()
    >>> loss = agreeing(Loss(torch.tensor(0.0), torch.tensor(2)), batch, rows)
    >>> loss.penalty  # ½ log 3
    tensor(0.5493)
    """
    apart = _apart(log_probs) if logs_of_rest is None else _apart(log_probs) + _apart(logs_of_rest)
    pairs = loss.count.to(apart.device).clamp(min=1) / 2
    penalty = batch.more[NAME].to(apart.device) * apart / pairs
    return replace(loss, penalty=penalty if loss.penalty is None else loss.penalty + penalty)


def _apart(log_probs: Tensor) -> Tensor:
    first, second = log_probs.float().chunk(2)
    return ((first.exp() - second.exp()) * (first - second)).sum() / 2
