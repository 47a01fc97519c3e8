"""Constants that Python and the CUDA kernels share. `header` writes every one of them for the kernels."""

from __future__ import annotations

from unrolled.kernels.cuda.structures import constants_header

LANES = 32  # threads of a warp
WARPS = 8  # of a thread block
THREADS = WARPS * LANES
TILE_COLUMNS = 32  # columns of the recurrent weights in one fragment
TILE_ROWS = 8  # rows of the batch in one product of the tensor cores
FRAGMENT_ROWS = 16  # rows of the recurrent weights in one fragment
FRAGMENT_BYTES = FRAGMENT_ROWS * TILE_COLUMNS * 2
VECTOR = 8  # 16-bit numbers in one 16-byte load

# Fragments that a thread keeps in registers, eight registers each.
MAX_REGISTER_FRAGMENTS = 16
REGISTER_FRAGMENTS_WITH_SPILL = 14  # if others are in shared memory: reading those takes registers
MAX_REGISTER_FRAGMENTS_OF_TWO = 18  # of two products, of which one is computed at a time

# Padding of a row in shared memory, so that no two lanes use one bank.
SUMS_PADDING = 4  # floats
EXCHANGE_PADDING = 32  # 16-bit numbers

MAX_CLUSTER_BLOCKS = 16
SINGLE_STEP_UNITS = WARPS // 2  # units of a block that takes a single step: two warps for each
NORM_STATISTICS = 4  # mean and 1 / deviation of two norms
EMPTY_WORD = -1  # 32 bits of an exchange before they are written: a NaN that rounding never gives


def header(**changed: int) -> str:
    """`constants.h`, which the kernels include; tests compile with `changed` values."""
    return constants_header(globals() | changed)
