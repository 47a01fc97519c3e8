"""Vocabularies on an NVIDIA GPU: the cross-entropy of 16-bit scores, and the gradient of an embedding.

Nothing is read back: a target out of range makes the loss NaN.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from unrolled.kernels.cuda import compiler, launch
from unrolled.kernels.vocabulary.cuda import plan
from unrolled.kernels.vocabulary.cuda.arguments import VocabularyArguments
from unrolled.kernels.vocabulary.cuda.constants import GROUPS, PACKED

DEVICE = "cuda"
MOST_PICKED = GROUPS  # highest scores of a row


def ready(device: torch.device) -> bool:
    """True if the kernels run on a device."""
    if device.type != DEVICE or compiler.missing() is not None:
        return False
    return torch.cuda.get_device_capability(device)[0] >= 8


def padded(count: int) -> int:
    """The width of rows of scores: tensor cores are several times faster on such matrices."""
    return -(-count // PACKED) * PACKED


def cross_entropy_(
    scores: Tensor, targets: Tensor, vocabulary: int, smoothing: float, ignored: int, *, with_gradient: bool
) -> Tensor:
    """The loss of each row of scores (n, W) in float32; with `with_gradient` its gradient overwrites the scores.

    Scores have 16 bits; those beyond the vocabulary do not count, and get zeros.
    """
    rows, width = scores.shape
    losses = torch.empty(rows, dtype=torch.float32, device=scores.device)
    given = VocabularyArguments()
    given.scores, given.tokens, given.losses = scores.data_ptr(), targets.data_ptr(), losses.data_ptr()
    given.rows, given.vocabulary, given.width = rows, vocabulary, width
    given.with_gradient, given.ignored, given.smoothing = with_gradient, ignored, smoothing
    program = plan.cross_entropy_program(scores.dtype, width)
    launch.run(program, "cross_entropy", plan.cross_entropy(rows, width), given, scores.device)
    return losses


def embedding_gradient(d_vectors: Tensor, tokens: Tensor, vocabulary: int, padding: int = -1) -> Tensor:
    """The gradient (V, E) of an embedding from that of the embedded tokens (n, E), float32; `padding` has none."""
    rows, width = d_vectors.shape
    d_weight = torch.empty(vocabulary, width, dtype=torch.float32, device=d_vectors.device)
    given = VocabularyArguments()
    given.d_vectors, given.tokens, given.d_weight = d_vectors.data_ptr(), tokens.data_ptr(), d_weight.data_ptr()
    given.rows, given.vocabulary, given.width = rows, vocabulary, width
    given.group, given.ignored = plan.group_size(vocabulary, width), padding
    launch.run(plan.EMBEDDING, "embedding", plan.embedding(vocabulary, width), given, d_vectors.device)
    return d_weight


def picks(scores: Tensor, count: int) -> bool:
    """True if `top_scores` runs here, and is faster than torch's."""
    known = scores.dtype == torch.float32 or scores.dtype in plan.NUMBERS
    return known and count <= MOST_PICKED and scores.shape[0] > 0 and scores.stride(-1) == 1 and ready(scores.device)


class TopScores(NamedTuple):
    """The highest log-probabilities of each row (n, count) in float32, and their tokens."""

    values: Tensor
    tokens: Tensor
    norms: Tensor  # (n,), log Σ exp of the scores; of normalised ones zeros
    endings: Tensor | None  # (n,), the log-probability of one token, -inf if it is blocked


def top_scores(
    scores: Tensor, count: int, blocked: Tensor | None, normalised: bool, ending: int | None = None
) -> TopScores:
    """The best tokens of each row (see `vocabulary.scores`), and the log-probability of the token `ending`."""
    rows, vocabulary = scores.shape
    values = torch.empty(rows, count, dtype=torch.float32, device=scores.device)
    chosen = torch.empty(rows, count, dtype=torch.int64, device=scores.device)
    given = VocabularyArguments()
    norms = torch.empty(rows, dtype=torch.float32, device=scores.device)
    given.scores, given.values, given.chosen = scores.data_ptr(), values.data_ptr(), chosen.data_ptr()
    given.norms = norms.data_ptr()
    given.rows, given.vocabulary, given.count = rows, vocabulary, count
    given.row_stride, given.normalised = scores.stride(0), normalised
    if blocked is not None:
        blocked = blocked.contiguous()
        given.blocked, given.blocked_stride = blocked.data_ptr(), vocabulary if len(blocked) > 1 else 0
    endings = None if ending is None else torch.empty_like(norms)
    if ending is not None and endings is not None:
        given.endings, given.ending = endings.data_ptr(), ending
    launch.run(plan.top_scores_program(scores.dtype), "top_scores", plan.top_scores(rows), given, scores.device)
    return TopScores(values, chosen, norms, endings)
