"""The reference of scores over a vocabulary, in plain torch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def wide(x: Tensor) -> Tensor:
    """x in float32, or in float64 if it has it: the precision of losses, also under autocast."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def top_scores(scores: Tensor, count: int, blocked: Tensor | None, normalised: bool) -> tuple[Tensor, Tensor]:
    """The `count` highest log-probabilities of each row that are not blocked, and their tokens."""
    log_probs = scores if normalised else scores.log_softmax(-1)
    if blocked is not None:
        log_probs = log_probs.masked_fill(blocked, -torch.inf)
    values, tokens = log_probs.topk(count, dim=-1)
    return values, tokens


def linear_scores(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x Wᵀ + b."""
    return F.linear(x, weight, bias)


def linear_cross_entropy(x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float) -> Tensor:
    """The summed cross-entropy of softmax(x Wᵀ + b)."""
    scores = F.linear(x, weight, bias)
    return F.cross_entropy(wide(scores), targets, reduction="sum", label_smoothing=smoothing)
