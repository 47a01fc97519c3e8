"""The kernels of a decoder with attention: their programs, and the size of each launch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from unrolled.kernels.attention.cuda import arguments
from unrolled.kernels.cuda import compiler
from unrolled.kernels.cuda.compiler import Program
from unrolled.kernels.recurrence import cuda as recurrence
from unrolled.kernels.recurrence.cuda import constants
from unrolled.kernels.recurrence.cuda.constants import THREADS, VECTOR
from unrolled.kernels.recurrence.cuda.plan import NUMBERS, Kind

TOGETHER = 4  # of look.cu: positions of a block of `keys_back`
MAX_SHARED_BYTES = 96 * 1024  # every GPU of compute capability 8.0 and newer has as much


@dataclass(frozen=True)
class Grid:
    """A launch of blocks that do not wait for each other."""

    blocks: int
    shared_bytes: int = 0
    threads: int = THREADS
    cluster: int = 1
    cooperative: bool = False


def sources() -> dict[str, str]:
    """The kernels' source files and generated headers, by name; cells.cuh is the recurrence's."""
    cells = (Path(recurrence.__path__[0]) / "cells.cuh").read_text()
    made = {"cells.cuh": cells, "arguments.h": arguments.header(), "constants.h": constants.header()}
    return compiler.sources(Path(__file__).parent) | made


@cache
def look(dtype: torch.dtype, luong: bool, additive: bool, projected: bool, gated: bool = False) -> Program:
    """`attend`, `attend_back` and, of an additive score, `keys_back`."""
    settings = {"LUONG": int(luong), "ADDITIVE": int(additive), "PROJECTED": int(projected), "GATED": int(gated)}
    return _program("look.cu", {"NUMBER_TYPE": NUMBERS[dtype], **settings})


@cache
def decoder_cell(kind: Kind, dtype: torch.dtype, luong: bool) -> Program:
    """`step_cell` and `step_cell_back`, `reset_hidden`… of two products, `mix` and `mix_back` of Luong's form."""
    macros: dict[str, int | str] = {"CELL_TYPE": kind.type, "NUMBER_TYPE": NUMBERS[dtype], **kind.constants()}
    return _program("decoder_cell.cu", {**macros, "LUONG": int(luong), "TWO_PRODUCTS": int(kind.two_products)})


def _program(source: str, macros: dict[str, int | str]) -> Program:
    return Program(source, tuple(f"-D{name}={value}" for name, value in macros.items()), sources)


def look_bytes(key_size: int, value_size: int, positions: int, additive: bool, backward: bool) -> int:
    """The shared memory of a block that attends, as `Shared` of look.cu lays it out."""
    width = key_size if backward else value_size
    groups = THREADS // min(width // VECTOR, THREADS)
    floats = key_size * (1 + additive) + (value_size if backward else 0) + groups * width + positions
    return -(-floats // 4) * 16  # whole words of 16 bytes


def pairs(rows: int, columns: int) -> Grid:
    """A thread for every two columns of each row."""
    return Grid(-(-rows * columns // (2 * THREADS)))
