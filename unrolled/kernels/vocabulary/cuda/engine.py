"""Vocabularies on an NVIDIA GPU: the cross-entropy of 16-bit scores, and the gradient of an embedding.

Nothing is read back: a target out of range makes the loss NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unrolled.kernels.cuda import compiler, launch
from unrolled.kernels.vocabulary.cuda import plan
from unrolled.kernels.vocabulary.cuda.arguments import VocabularyArguments
from unrolled.kernels.vocabulary.cuda.constants import PACKED

DEVICE = "cuda"
MOST_PICKED = 64  # highest scores of a row: each is a round through its block


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


def top_scores(scores: Tensor, count: int, blocked: Tensor | None, normalised: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The highest log-probabilities of each row (n, count) in float32, their tokens, and log Σ exp of the scores (n,).

    See `vocabulary.scores`; of normalised scores the last are zeros.
    """
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
    launch.run(plan.top_scores_program(scores.dtype), "top_scores", plan.top_scores(rows), given, scores.device)
    return values, chosen, norms
