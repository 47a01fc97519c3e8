"""Constants that Python and the CUDA kernels of searches share; `header` writes all of them for the kernels."""

from __future__ import annotations

from unrolled.kernels.cuda.structures import constants_header

LANES = 32  # threads of a warp
WARPS = 4  # of a thread block
THREADS = WARPS * LANES
MOST_FORBIDDEN = 16  # tokens, each of which is compared with every token


def header() -> str:
    """`constants.h`, which the kernels include."""
    return constants_header(globals())
