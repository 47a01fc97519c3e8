"""The arguments of the kernels of Transformer steps: one structure for Python and for CUDA."""

from __future__ import annotations

import ctypes

from unrolled.kernels.cuda.structures import arguments_header, members

# name → type of the numbers. B inputs with W hypotheses each, R = B·W rows; N heads of d numbers, E = N·d
POINTERS = {
    "query": "const void",  # (R, E), rows `query_stride` apart
    "new_keys": "const void",  # (R, E), of this step, with the same stride; or none
    "new_values": "const void",
    "keys": "void",  # (B, N, ·, S, d) with strides; new ones are written to their places
    "values": "void",
    "position": "const int64_t",  # (R,), the place of the new keys, after those of the steps before; or none
    "ancestors": "const int64_t",  # (R, S), the hypothesis whose keys a row sees at each place; or none
    "mask": "const uint8_t",  # (B, S), places that are seen; or none
    "seen": "void",  # (R, E), the result
    "x": "const float",  # (R, E), of a sum and its norm
    "added": "const void",  # (R, E); or none
    "sum": "float",  # (R, E), x and what is added, or with `after` their norm
    "weight": "const float",  # (E,), of the norm
    "bias": "const float",
    "normed": "void",  # (R, E), the norm
}
INTEGERS = (
    "rows",  # R
    "width",  # W
    "heads",  # N
    "places",  # S
    "query_stride",
    "input_stride",  # of keys and values, from input to input
    "head_stride",
    "hypothesis_stride",
    "place_stride",
    "size",  # E
    "after",  # the norm comes after the sum, and is the next x
)
DOUBLES = ("scale", "eps")


class BlockArguments(ctypes.Structure):
    """The structure; every member has 8 bytes, so that no compiler adds padding."""

    _fields_ = members(POINTERS, INTEGERS, *DOUBLES)


def header() -> str:
    """`arguments.h`, which the kernels include."""
    return arguments_header(POINTERS, INTEGERS, *DOUBLES)
