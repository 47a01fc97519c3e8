"""Constants that Python and the CUDA kernels of Transformer steps share; `header` writes all of them."""

from __future__ import annotations

from unrolled.kernels.cuda.structures import constants_header

LANES = 32  # threads of a warp
WARPS = 8  # of a thread block
THREADS = WARPS * LANES
HELD = 8  # pairs of a row that a lane keeps in registers


def header() -> str:
    """`constants.h`, which the kernels include."""
    return constants_header(globals())
