"""The programs of the recurrence, for the compiler in `unrolled.kernels.cuda.compiler`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch

from unrolled.kernels.cuda import compiler
from unrolled.kernels.cuda.compiler import Program
from unrolled.kernels.recurrence.cuda import arguments, constants
from unrolled.kernels.recurrence.cuda.plan import NUMBERS, Kind, padded_size


def sources() -> dict[str, str]:
    """The kernels' source files and generated headers, by name."""
    found = compiler.sources(Path(__file__).parent)
    return found | {"arguments.h": arguments.header(), "constants.h": constants.header()}


PROBE = Program("probe.cu", (), sources)


@cache
def recurrence(
    kind: Kind, hidden: int, dtype: torch.dtype, units: int, in_cluster: bool = False, many_rows: bool = False
) -> Program:
    """`forward` and `backward` for a hidden size, with `units` of it in a thread block."""
    source = kind.cluster_source if in_cluster else kind.source
    assert source is not None, f"{kind.name} has no clusters"
    sizes = {
        "HIDDEN_SIZE": hidden,
        "PADDED_SIZE": padded_size(hidden),
        "CELL_STATE_SIZE": kind.cell_state_size(padded_size(hidden)),
        "BLOCK_UNITS": units,
        "MANY_ROWS": int(many_rows and not (kind.two_products or kind.norm)),  # these have no registers left
    }
    return _program(source, kind, dtype, sizes)


@cache
def single_step(kind: Kind, dtype: torch.dtype, rows: int) -> Program:
    """`single_step` of `rows` sequences."""
    return _program("single_step.cu", kind, dtype, {"ROWS": rows})


def _program(source: str, kind: Kind, dtype: torch.dtype, sizes: dict[str, int]) -> Program:
    macros = {"CELL_TYPE": kind.type, "NUMBER_TYPE": NUMBERS[dtype], **kind.constants(), **sizes}
    return Program(source, tuple(f"-D{name}={value}" for name, value in macros.items()), sources)
