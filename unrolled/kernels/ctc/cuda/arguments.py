"""The arguments of the CTC kernels: one structure for Python and for CUDA."""

from __future__ import annotations

import ctypes

from unrolled.kernels.cuda.structures import arguments_header, members

# name → type of the numbers, contiguous unless strides are among the integers below
POINTERS = {
    "log_probs": "const float",  # (B, T, V), strided
    "targets": "const int64_t",  # (B, L) with a stride, or concatenated (ΣL,) with offsets
    "offsets": "const int64_t",  # (B,), or none
    "input_lengths": "const int64_t",  # (B,)
    "target_lengths": "const int64_t",  # (B,)
    "losses": "float",  # (B,)
    "totals": "uint64_t",  # (B,): p(target) as a mantissa and an exponent
    "states": "uint64_t",  # (B, 2, T, 2, S): α and what arrives for β, of blanks and of labels
    "links": "int",  # (B, S): the next position of the same label
    "d_losses": "const float",  # (B,), strided
    "gradient": "float",  # (B, T, V)
    "scores": "double",  # (B,): log-probability of the best path
    "moves": "uint8_t",  # (B, T, S): states that the best path to a blank and to a label moved on
    "path": "int",  # (B, T): states of the best path
}
INTEGERS = (
    "batch",
    "steps",
    "labels",  # V
    "blank",
    "row_stride",  # of log_probs
    "step_stride",
    "target_stride",
    "target_count",  # labels of all targets, or of a row: no target may have more
    "pairs",  # S: a blank and the label after it, for the longest target that has a path
    "roles",  # blocks of a sequence: α alone, or α, β and links
    "d_losses_stride",
    "walk_frames",  # frames of moves in shared memory at once
)


class CTCArguments(ctypes.Structure):
    """The structure; every member has 8 bytes, so that no compiler adds padding."""

    _fields_ = members(POINTERS, INTEGERS)


def header() -> str:
    """`arguments.h`, which the kernels include."""
    return arguments_header(POINTERS, INTEGERS)
