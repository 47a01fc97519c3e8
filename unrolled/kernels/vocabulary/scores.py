"""Scores over a vocabulary: the best few of each row (search), and the cross-entropy of a linear layer (training)."""

from __future__ import annotations

import torch
from torch import Tensor

from unrolled.kernels import ENGINES
from unrolled.kernels.vocabulary import chunked, reference
from unrolled.kernels.vocabulary.cuda import engine


def top_scores(
    scores: Tensor, count: int, blocked: Tensor | None = None, *, normalised: bool = True
) -> tuple[Tensor, Tensor]:
    """The `count` highest log-probabilities of each row and their tokens, in order: scores (N, V) → (N, count) twice.

    Tokens that are `blocked`, (N, V) or (1, V), are left out; if too few remain, any tokens follow with −inf. Scores
    that are not `normalised` are log-probabilities up to a constant of each row, which includes blocked tokens.

    >>> values, tokens = top_scores(torch.tensor([[0.5, 0.1, 0.4]]).log(), 2, torch.tensor([[True, False, False]]))
    >>> tokens, values.exp()
    (tensor([[2, 1]]), tensor([[0.4000, 0.1000]]))
    """
    if _native(scores) and scores.dtype == torch.float32 and not torch.compiler.is_compiling():
        from unrolled.kernels.vocabulary import native_ops as vocabulary_ops

        return vocabulary_ops.top_scores(scores, count, blocked, normalised)
    if scores.is_cuda and not torch.compiler.is_compiling() and engine.picks(scores, count):
        return engine.top_scores(scores, count, blocked, normalised)[:2]
    return reference.top_scores(scores, count, blocked, normalised)


def top_scores_and(
    token: int, scores: Tensor, count: int, blocked: Tensor, *, normalised: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """`top_scores`, and the log-probability of one token in each row (N,), -inf where it is blocked."""
    if scores.is_cuda and engine.picks(scores, count):
        values, tokens, _, one = engine.top_scores(scores, count, blocked, normalised, token)
        assert one is not None
        return values, tokens, one
    wide = scores.float()
    one = (wide if normalised else wide.log_softmax(-1))[:, token]
    one = one.masked_fill(blocked[:, token], -torch.inf)
    return *top_scores(wide, count, blocked, normalised=normalised), one


def linear_scores(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`F.linear(x, weight, bias)` of x (N, F), for a weight with many rows; on a CPU faster than torch's own.

    Under autocast to bfloat16 only the factors are rounded, not the scores.

    >>> linear_scores(torch.ones(1, 2), torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), None)
    tensor([[ 3.,  7., 11.]])
    """
    if _native(x) and _native(weight) and not torch.is_grad_enabled() and not torch.compiler.is_compiling():
        from unrolled.kernels.vocabulary import native_ops as vocabulary_ops

        if not _autocast():
            return vocabulary_ops.score_rows(x, weight, bias)
        if vocabulary_ops.NARROW:
            return vocabulary_ops.narrow_score_rows(x, weight, bias)
    if x.is_cuda and not torch.is_grad_enabled() and not torch.compiler.is_compiling():
        return chunked.linear_scores(x, weight, bias)
    return reference.linear_scores(x, weight, bias)


def linear_cross_entropy(
    x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float = 0.0
) -> Tensor:
    """The summed cross-entropy of softmax(x Wᵀ + b): x (N, F), weight (V, F), targets (N,).

    Equal to `F.cross_entropy(F.linear(x, weight, bias), targets, reduction="sum", label_smoothing=smoothing)`. On a CPU
    in one pass, with the gradient in the memory of the scores. On a GPU targets of −100 are ignored, and large scores
    are computed a few rows at a time.

    >>> loss = linear_cross_entropy(torch.zeros(2, 3), torch.ones(4, 3), None, torch.tensor([0, 3]))
    >>> torch.allclose(loss, 2 * torch.tensor(4.0).log())
    True
    """
    if _native(x) and _native(weight) and x.shape[0]:
        from unrolled.kernels.vocabulary import native_ops as vocabulary_ops

        return vocabulary_ops.linear_cross_entropy(x, weight, bias, targets, smoothing)
    if x.is_cuda and not torch.compiler.is_compiling() and chunked.pays(x, weight):
        return chunked.linear_cross_entropy(x, weight, bias, targets, smoothing)
    return reference.linear_cross_entropy(x, weight, bias, targets, smoothing)


def _native(tensor: Tensor) -> bool:
    if "native" not in ENGINES or tensor.device.type != "cpu":
        return False
    return tensor.dtype == torch.float32 or (tensor.dtype == torch.bfloat16 and _autocast())


def _autocast() -> bool:
    return torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
