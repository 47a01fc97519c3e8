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
