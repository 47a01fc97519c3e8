"""Constants that Python and the CUDA kernels of CTC share. `header` writes every one of them for the kernels."""

from __future__ import annotations

from unrolled.kernels.cuda.structures import constants_header

LANES = 32  # threads of a warp
WARPS = 4  # of a thread block: one for each scheduler of a multiprocessor
THREADS = WARPS * LANES

NOTHING = -(1 << 28)  # the exponent of zero
ENDS_BYTES = 16 + 4 * WARPS  # of shared memory: two scores, and whether a warp met something wrong
HEAD = 1 << 30  # of a link: no label before is the same


def header() -> str:
    """`constants.h`, which the kernels include."""
    return constants_header(globals())
