"""The arguments of the kernels of vocabularies: one structure for Python and for CUDA."""

from __future__ import annotations

import ctypes

from unrolled.kernels.cuda.structures import arguments_header, members

# name → type of the numbers, contiguous unless strides are among the integers below
POINTERS = {
    "scores": "Words",  # (rows, width), 16-bit; their gradient overwrites them
    "tokens": "const int64_t",  # (rows,): the targets of the scores, or the tokens that were embedded
    "losses": "float",  # (rows,)
    "d_vectors": "const float",  # (rows, width): gradients of the embedded tokens
    "d_weight": "float",  # (vocabulary, width)
    "blocked": "const uint8_t",  # (rows, vocabulary) or (vocabulary,): tokens that are left out; or none
    "norms": "float",  # (rows,): log Σ exp of the scores; 0 if they are normalised
    "endings": "float",  # (rows,): the log-probability of the token `ending`, or −inf if it is left out; or none
    "values": "float",  # (rows, count): the highest log-probabilities
    "chosen": "int64_t",  # (rows, count): their tokens
}
INTEGERS = (
    "rows",
    "vocabulary",
    "width",  # of a row: of scores, which are zero beyond the vocabulary, or of an embedding
    "with_gradient",  # of the scores
    "group",  # tokens of the vocabulary that a block adds up
    "count",  # of highest scores
    "row_stride",  # of scores, where they are strided
    "ending",
    "blocked_stride",  # 0: the same for all rows
    "normalised",  # scores are log-probabilities
    "ignored",  # the target that is not scored, or the token of padding, whose gradient is zero
)


class VocabularyArguments(ctypes.Structure):
    """The structure; every member has 8 bytes, so that no compiler adds padding."""

    _fields_ = members(POINTERS, INTEGERS, "smoothing")


def header() -> str:
    """`arguments.h`, which the kernels include."""
    return arguments_header(POINTERS, INTEGERS, "smoothing")
