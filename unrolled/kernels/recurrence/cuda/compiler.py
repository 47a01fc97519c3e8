"""Compiles the kernels' source to a GPU's machine code with NVRTC, and caches it on disk."""

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
from unrolled.kernels.recurrence.cuda import arguments, constants
from unrolled.kernels.recurrence.cuda.plan import NUMBERS, Kind, padded_size

SOURCES = Path(__file__).parent
OPTIONS = ("--std=c++17", "--device-as-default-execution-space", "-lineinfo")


@cache
def missing() -> str | None:
    """The reason why kernels cannot be compiled or launched here, or None."""
    try:
        from cuda.bindings import driver, nvrtc  # noqa: F401
    except ImportError:
        return "it needs the package cuda-bindings, which is not installed (pip install cuda-bindings)"
    try:
        nvrtc.nvrtcVersion()
    except RuntimeError:  # the first call loads the library
        return "it needs NVRTC, which is not installed (pip install nvidia-cuda-nvrtc)"
    return None


class Program(NamedTuple):
    """A source file and the macros it is compiled with."""

    source: str
    defines: tuple[str, ...]


PROBE = Program("probe.cu", ())


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
    return Program(source, tuple(f"-D{name}={value}" for name, value in macros.items()))


@cache
def machine_code(program: Program, architecture: str) -> bytes:
    """A program as a cubin for `architecture` (such as sm_90), from the cache on disk if possible."""
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
    """The kernels' source files and generated headers, by name."""
    found = {path.name: path.read_text() for path in sorted(SOURCES.glob("*.cu*")) if path.suffix in (".cu", ".cuh")}
    return found | {"arguments.h": arguments.header(), "constants.h": constants.header()}


class Compiled(NamedTuple):
    code: bytes
    log: str


def compile_source(name: str, texts: dict[str, str], options: tuple[str, ...]) -> Compiled:
    """Machine code of the file `name`; the error of one that does not compile has the compiler's log."""
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
    """The result of a call of NVRTC; raises if it failed."""
    status, *values = result
    if status.value != 0:
        raise UserError(
            f"NVRTC, which compiles the GPU kernels, failed: {status.name}.",
            "Reinstall nvidia-cuda-nvrtc in the version of torch's CUDA, or use backend='torch'.",
        )
    return values[0] if values else None


def cache_folder() -> Path:
    """The folder of compiled kernels: UNROLLED_CACHE, or the user's cache folder."""
    folder = os.environ.get("UNROLLED_CACHE")
    if folder:
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unrolled"


def _fingerprint(name: str, texts: dict[str, str], options: tuple[str, ...]) -> str:
    from cuda.bindings import nvrtc

    version = nvrtc.nvrtcVersion()[1:]
    content = repr((name, sorted(texts.items()), options, version))
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def _keep(path: Path, code: bytes) -> None:
    """Write to a temporary file and rename it. Without space or permission, nothing is cached."""
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
