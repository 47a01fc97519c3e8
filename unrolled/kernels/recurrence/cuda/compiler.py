"""The kernels' source to a GPU's machine code, by NVRTC; what was compiled once is kept on disk."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from unrolled.errors import UserError
from unrolled.kernels.recurrence.cuda.arguments import header
from unrolled.kernels.recurrence.cuda.plan import NUMBERS, Kind, width_blocks

SOURCES = Path(__file__).parent
OPTIONS = ("--std=c++17", "--device-as-default-execution-space", "-lineinfo")


@cache
def missing() -> str | None:
    """Why nothing can be compiled or launched here, or None."""
    try:
        from cuda.bindings import driver, nvrtc  # noqa: F401
    except ImportError:
        return "it needs the package cuda-bindings, which is not installed (pip install cuda-bindings)"
    try:
        nvrtc.nvrtcVersion()
    except RuntimeError:  # the library itself is looked for at the first call
        return "it needs NVRTC, which is not installed (pip install nvidia-cuda-nvrtc)"
    return None


class Program(NamedTuple):
    """One of the sources with what makes it a program."""

    source: str
    defines: tuple[str, ...]


PROBE = Program("probe.cu", ())


@cache
def recurrence(
    kind: Kind, hidden: int, dtype: torch.dtype, units: int, near: bool = False, many_rows: bool = False
) -> Program:
    """`forward` and `backward` of a width, `units` of it to a block; in clusters, if they are near."""
    many_rows = many_rows and not (kind.twice or kind.norm)  # these have no registers left
    sizes = {"REAL_UNITS": hidden, "WIDTH": width_blocks(hidden), "BLOCK_UNITS": units, "MANY_ROWS": int(many_rows)}
    defines = (*_cell(kind, dtype), *(f"-D{name}={size}" for name, size in sizes.items()))
    source = kind.near if near else kind.source
    assert source is not None, f"{kind.name} has no clusters"
    return Program(source, defines)


@cache
def once(kind: Kind, dtype: torch.dtype, rows: int) -> Program:
    """`once`, a single step of so many sequences."""
    return Program("once.cu", (*_cell(kind, dtype), f"-DROWS={rows}"))


def _cell(kind: Kind, dtype: torch.dtype) -> tuple[str, ...]:
    return f"-DCELL_TYPE={kind.type}", f"-DNUMBER_TYPE={NUMBERS[dtype]}"


@cache
def machine_code(program: Program, architecture: str) -> bytes:
    """A program as a cubin for `architecture` (sm_90, say); from the disk if it is there."""
    options = (*OPTIONS, f"--gpu-architecture={architecture}", *program.defines)
    texts = sources()
    kept = cache_folder() / f"{_fingerprint(program.source, texts, options)}.cubin"
    try:
        return kept.read_bytes()
    except OSError:
        pass
    _say_once()
    code = compile_source(program.source, texts, options).code
    _keep(kept, code)
    return code


def sources() -> dict[str, str]:
    """Every file that a kernel is made of, by name."""
    found = {path.name: path.read_text() for path in sorted(SOURCES.glob("*.cu*")) if path.suffix in (".cu", ".cuh")}
    return found | {"arguments.h": header()}


class Compiled(NamedTuple):
    code: bytes
    log: str  # what the compiler had to say


def compile_source(name: str, texts: dict[str, str], options: tuple[str, ...]) -> Compiled:
    """Machine code of the file `name`; a mistake in it is an error with the compiler's own words."""
    from cuda.bindings import nvrtc

    headers = {other: text for other, text in texts.items() if other != name}
    program = _checked(
        nvrtc.nvrtcCreateProgram(
            texts[name].encode(),
            name.encode(),
            len(headers),
            [text.encode() for text in headers.values()],
            [other.encode() for other in headers],
        )
    )
    encoded = [option.encode() for option in options]
    (result,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
    written = bytes(_checked(nvrtc.nvrtcGetProgramLogSize(program)))
    _checked(nvrtc.nvrtcGetProgramLog(program, written))
    log = written.rstrip(b"\0").decode(errors="replace")
    if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RuntimeError(f"{name} does not compile ({' '.join(options)}):\n{log}")
    code = bytes(_checked(nvrtc.nvrtcGetCUBINSize(program)))
    _checked(nvrtc.nvrtcGetCUBIN(program, code))
    nvrtc.nvrtcDestroyProgram(program)
    return Compiled(code, log)


def _checked(result: tuple[Any, ...]) -> Any:
    """What a call of NVRTC returned, if it went well."""
    status, *values = result
    if status.value != 0:
        raise UserError(
            f"NVRTC, which compiles the GPU kernels, failed: {status.name}.",
            "Reinstall nvidia-cuda-nvrtc in the version of torch's CUDA, or use backend='torch'.",
        )
    return values[0] if values else None


def cache_folder() -> Path:
    """Where machine code is kept: UNROLLED_CACHE, or the user's cache folder."""
    given = os.environ.get("UNROLLED_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unrolled"


def _fingerprint(name: str, texts: dict[str, str], options: tuple[str, ...]) -> str:
    from cuda.bindings import nvrtc

    version = nvrtc.nvrtcVersion()[1:]
    told = repr((name, sorted(texts.items()), options, version))
    return hashlib.sha256(told.encode()).hexdigest()[:32]


def _keep(path: Path, code: bytes) -> None:
    """Written beside and renamed, so that nobody reads half of it. A full or read-only disk costs only time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as beside:
            beside.write(code)
        os.replace(beside.name, path)
    except OSError:
        return


@cache
def _say_once() -> None:
    print("Compiling GPU kernels; this takes some seconds, once.", file=sys.stderr)
