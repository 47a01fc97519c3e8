"""Consistency of two passes: every example is twice in a batch, with different dropout, and a penalty pulls the two
distributions together (R-Drop, Liang et al. 2021; for CTC, Yao et al. 2024)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from torch import Tensor

from unrolled.data import Batch
from unrolled.data.batching.ragged import Rows
from unrolled.training.loss import Loss


def twice(gather: Callable[[Rows], Batch], weight: float) -> Callable[[Rows], Batch]:
    """Batches whose second half repeats the first; unchanged if the weight is 0."""
    return (lambda rows: gather(np.tile(rows, 2))) if weight else gather


def agreeing(loss: Loss, weight: float, log_probs: Tensor, logs_of_rest: Tensor | None = None) -> Loss:
    """The loss, with `weight` times the divergence between the halves of `log_probs` (2 N, V) as its penalty.

    It is the mean of KL(p ‖ q) and KL(q ‖ p), ½ Σ (p − q) (log p − log q), summed over the N rows and divided as the
    loss is. Labels that are each true or false have two probabilities: `logs_of_rest` are the logarithms of 1 − p.

    >>> import torch
    >>> rows = torch.tensor([[0.75, 0.25], [0.25, 0.75]]).log()
    >>> loss = agreeing(Loss(torch.tensor(0.0), torch.tensor(2)), 1.0, rows)
    >>> loss.penalty  # ½ log 3
    tensor(0.5493)
    """
    apart = _apart(log_probs) if logs_of_rest is None else _apart(log_probs) + _apart(logs_of_rest)
    pairs = loss.count.to(apart.device).clamp(min=1) / 2
    penalty = weight * apart / pairs
    return replace(loss, penalty=penalty if loss.penalty is None else loss.penalty + penalty)


def _apart(log_probs: Tensor) -> Tensor:
    first, second = log_probs.float().chunk(2)
    return ((first.exp() - second.exp()) * (first - second)).sum() / 2
