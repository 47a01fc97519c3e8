"""Constants that Python and the CUDA kernels of vocabularies share; `header` writes all of them for the kernels."""

from __future__ import annotations

from unrolled.kernels.cuda.structures import constants_header

LANES = 32  # threads of a warp
WARPS = 8  # of a thread block
THREADS = WARPS * LANES

PACKED = 8  # 16-bit scores that a thread reads at once, 16 bytes: rows of scores have a multiple of them
PARTIAL = 3  # numbers of a row's sums

GROUP = 4  # threads that find the best of their tokens together
GROUPS = THREADS // GROUP
HELD = 3  # groups of scores, 16 bytes each, that a thread keeps in registers
MOST_FOUND = 256  # places for tokens that may be among the best

COLUMNS = 64  # of the embedding's gradient in a block
SLICES = THREADS // COLUMNS  # threads that share a column: each adds up its part of the tokens
SCANNED = 4  # tokens of a lane before a block adds up those that it found
FOUND = SCANNED * LANES  # places for what a warp finds


def header() -> str:
    """`constants.h`, which the kernels include."""
    return constants_header(globals())
