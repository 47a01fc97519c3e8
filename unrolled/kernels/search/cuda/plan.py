"""The programs of the kernels of searches and the sizes of their launches."""

from __future__ import annotations

from pathlib import Path

from unrolled.kernels.cuda import compiler
from unrolled.kernels.cuda.compiler import Program
from unrolled.kernels.cuda.launch import IndependentBlocks
from unrolled.kernels.search.cuda import arguments, constants
from unrolled.kernels.search.cuda.constants import THREADS, WARPS


def sources() -> dict[str, str]:
    """The kernels' source files and generated headers, by name."""
    found = compiler.sources(Path(__file__).parent)
    return found | {"arguments.h": arguments.header(), "constants.h": constants.header()}


BEAM_STEP = Program("beam_step.cu", (), sources)
TRACE_BACK = Program("trace_back.cu", (), sources)
DRAW = Program("draw.cu", (), sources)


def beam_step(rows: int, width: int, count: int, columns: int) -> IndependentBlocks:
    """A block for each row: see `Kept` in beam_step.cu."""
    return IndependentBlocks(rows, THREADS, 8 * (width * count + 4 * columns + 5 * width))


def trace_back(outputs: int) -> IndependentBlocks:
    """A thread for each output."""
    return IndependentBlocks(-(-outputs // THREADS), THREADS, 0)


def draw(rows: int) -> IndependentBlocks:
    """A block for each row."""
    return IndependentBlocks(rows, THREADS, 8 * THREADS + 8 * WARPS + 8)
