"""The programs of the kernels of Transformer steps and the sizes of their launches."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch

from unrolled.kernels.blocks.cuda import arguments, constants
from unrolled.kernels.blocks.cuda.constants import LANES, WARPS
from unrolled.kernels.cuda import compiler
from unrolled.kernels.cuda.compiler import Program
from unrolled.kernels.cuda.launch import IndependentBlocks

NUMBERS = {torch.bfloat16: "BFloat", torch.float16: "Half", torch.float32: "Wide"}
VECTOR_BYTES = 16  # that a lane loads at once
PLACES_OF_A_WARP = 64  # longer caches are shared by more warps


def sources() -> dict[str, str]:
    """The kernels' source files and generated headers, by name."""
    found = compiler.sources(Path(__file__).parent)
    return found | {"arguments.h": arguments.header(), "constants.h": constants.header()}


@cache
def attend_program(dtype: torch.dtype, size: int, parts: int) -> Program:
    """The program for heads of so many numbers, with so many warps for each query.

    A lane of a short cache loads fewer keys ahead: with fewer registers more queries run at the same time.
    """
    ahead, blocks = (2, 4) if parts == 1 else (4, 3)
    sizes = f"-DSIZE={size}", f"-DPARTS={parts}", f"-DAHEAD={ahead}", f"-DBLOCKS_TOGETHER={blocks}"
    return Program("attend_step.cu", (f"-DNUMBER={NUMBERS[dtype]}", *sizes), sources)


@cache
def add_norm_program(dtype: torch.dtype) -> Program:
    """The program for a norm of a dtype, and of what is added."""
    return Program("add_norm.cu", (f"-DNUMBER={NUMBERS[dtype]}",), sources)


def lanes_of_a_key(dtype: torch.dtype, size: int) -> int:
    """The lanes that hold a key of so many numbers; 0 if it does not fit into a warp."""
    lanes, rest = divmod(size * dtype.itemsize, VECTOR_BYTES)
    return lanes if rest == 0 and lanes in (1, 2, 4, 8, 16, 32) else 0


def parts(places: int) -> int:
    """The warps that share a query."""
    found = 1
    while found < WARPS and places > found * PLACES_OF_A_WARP:
        found *= 2
    return found


def attend(queries: int, places: int, dtype: torch.dtype, size: int) -> IndependentBlocks:
    """Some warps for each query."""
    together = WARPS // parts(places)
    numbers = 2 + VECTOR_BYTES // dtype.itemsize  # see `Softmax` in attend_step.cu
    shared = 4 * numbers * WARPS * lanes_of_a_key(dtype, size)
    return IndependentBlocks(-(-queries // together), WARPS * LANES, shared)


def add_norm(rows: int) -> IndependentBlocks:
    """A warp for each row."""
    return IndependentBlocks(-(-rows // WARPS), WARPS * LANES, 0)
