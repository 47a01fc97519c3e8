"""Losses of a classifier."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def losses_of(scores: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy in nats: (B,), or (B, C) where every label stands for itself; squared errors of numbers, (B,)."""
    if targets.dim() == 1 and targets.is_floating_point():
        return (scores[:, 0] - targets).square()
    if targets.dim() == 2:
        return F.binary_cross_entropy_with_logits(scores, targets, reduction="none")
    # −1 stands for a label that training never saw: there is no score to compare it with
    return F.cross_entropy(scores, targets, ignore_index=-1, reduction="none")
