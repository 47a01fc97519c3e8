"""The programs of the kernels of vocabularies and the sizes of their launches."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch

from unrolled.kernels.cuda import compiler
from unrolled.kernels.cuda.compiler import Program
from unrolled.kernels.cuda.launch import IndependentBlocks
from unrolled.kernels.vocabulary.cuda import arguments, constants
from unrolled.kernels.vocabulary.cuda.constants import (
    COLUMNS,
    FOUND,
    GROUPS,
    LANES,
    MOST_FOUND,
    PARTIAL,
    SLICES,
    THREADS,
    WARPS,
)

NUMBERS = {torch.bfloat16: "BFloat", torch.float16: "Half"}
WARP_WIDTH = 1024  # scores in a row up to which a warp computes it; a block computes a longer one
MOST_BLOCKS = 1024  # of an embedding's gradient, before a block takes more tokens: about those that a GPU runs at once
MOST_TOKENS = 32  # of the vocabulary in a block: their sums take 32 KiB of shared memory


def sources() -> dict[str, str]:
    """The kernels' source files and generated headers, by name."""
    found = compiler.sources(Path(__file__).parent)
    return found | {"arguments.h": arguments.header(), "constants.h": constants.header()}


@cache
def cross_entropy_program(dtype: torch.dtype, width: int) -> Program:
    """The program for rows of so many scores."""
    return Program("cross_entropy.cu", (f"-DNUMBER={NUMBERS[dtype]}", f"-DROW_THREADS={_row_threads(width)}"), sources)


def cross_entropy(rows: int, width: int) -> IndependentBlocks:
    """A warp or a block for each row."""
    together = THREADS // _row_threads(width)
    return IndependentBlocks(-(-rows // together), THREADS, 4 * PARTIAL * WARPS)


def _row_threads(width: int) -> int:
    return LANES if width <= WARP_WIDTH else THREADS


@cache
def top_scores_program(dtype: torch.dtype) -> Program:
    """The program for scores of a dtype."""
    kind = "float" if dtype == torch.float32 else "uint16_t"
    return Program(
        "top_scores.cu", (f"-DNUMBER={NUMBERS.get(dtype, 'Half')}", f"-DSCORE={kind}", "-DBLOCKS_TOGETHER=4"), sources
    )


def top_scores(rows: int) -> IndependentBlocks:
    """A block for each row: see `Shared` in top_scores.cu."""
    return IndependentBlocks(rows, THREADS, (4 * PARTIAL + 8) * WARPS + 8 * (GROUPS + MOST_FOUND) + 16)


EMBEDDING = Program("embedding.cu", (), sources)


def group_size(vocabulary: int, width: int) -> int:
    """Tokens of the vocabulary that a block adds up."""
    group = 1
    while group < MOST_TOKENS and -(-vocabulary // group) * _tiles(width) > MOST_BLOCKS:
        group *= 2
    return group


def embedding(vocabulary: int, width: int) -> IndependentBlocks:
    """A block for some tokens of the vocabulary and some columns."""
    group = group_size(vocabulary, width)
    shared = 4 * (group * SLICES * COLUMNS + WARPS * FOUND + WARPS)
    return IndependentBlocks(-(-vocabulary // group) * _tiles(width), THREADS, shared)


def _tiles(width: int) -> int:
    return -(-width // COLUMNS)
