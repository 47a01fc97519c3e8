"""The programs of the CTC kernels and the sizes of their launches."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from unrolled.kernels.ctc.cuda import arguments, constants
from unrolled.kernels.ctc.cuda.constants import ENDS_BYTES, THREADS, WARPS
from unrolled.kernels.cuda import compiler
from unrolled.kernels.cuda.compiler import Program
from unrolled.kernels.cuda.launch import IndependentBlocks

# pairs of a blank and a label that a thread keeps in registers → frames of a chunk, which it loads ahead
CHUNKS = {1: 8, 2: 8, 4: 4, 8: 2, 16: 1}
MAX_LABELS = max(CHUNKS) * THREADS - 1
WALK_BYTES = 24 * 1024  # of moves in shared memory, while the best path is walked back
ROLES = 3  # blocks of a sequence: α, β, and the links between equal labels


def sources() -> dict[str, str]:
    """The kernels' source files and generated headers, by name."""
    found = compiler.sources(Path(__file__).parent)
    return found | {"arguments.h": arguments.header(), "constants.h": constants.header()}


@cache
def program(source: str, longest: int) -> Program:
    """`loss.cu` or `align.cu` for targets of up to `longest` labels."""
    pairs = next(pairs for pairs in CHUNKS if longest < pairs * THREADS)
    return Program(source, (f"-DPAIRS={pairs}", f"-DCHUNK={CHUNKS[pairs]}"), sources)


def pairs_of(longest: int) -> int:
    """S: places for the pairs of a target in memory; four states are 32 bytes, which a GPU reads at once."""
    return -(-(longest + 1) // 4) * 4


def lattice(batch: int, longest: int, save: bool) -> IndependentBlocks:
    """The blocks that compute the losses, and with `save` what the gradient needs."""
    return IndependentBlocks(batch * (ROLES if save else 1), THREADS, _wave_bytes(longest))


def gradient(batch: int, steps: int, longest: int) -> IndependentBlocks:
    """The blocks that compute the gradient, a warp for each frame."""
    return IndependentBlocks(batch * -(-steps // WARPS), THREADS, (1 + WARPS) * 4 * pairs_of(longest))


def align(batch: int, longest: int) -> IndependentBlocks:
    """The blocks that find the best paths."""
    return IndependentBlocks(batch, THREADS, _wave_bytes(longest) + walk_frames(longest) * pairs_of(longest))


def walk_frames(longest: int) -> int:
    """Frames of moves in shared memory at once."""
    return WALK_BYTES // pairs_of(longest)


def _wave_bytes(longest: int) -> int:
    """Numbers that pass from warp to warp, 8 bytes each, and the ends of the paths."""
    pairs = next(pairs for pairs in CHUNKS if longest < pairs * THREADS)
    return (WARPS + 1) * 2 * CHUNKS[pairs] * 8 + ENDS_BYTES
