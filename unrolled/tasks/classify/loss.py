"""Losses of a classifier."""

from __future__ import annotations

import torch
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


def focal(losses: Tensor, gamma: float) -> Tensor:
    """Focal losses, (1 − p)^γ · −ln p for cross-entropies −ln p (Lin et al. 2017).

    >>> focal(torch.tensor([0.5]).log().neg(), 2.0)  # 0.25 · 0.6931
    tensor([0.1733])
    """
    return (-torch.expm1(-losses.clamp(min=1e-7))).pow(gamma) * losses
