"""Compiles the kernels' source to a GPU's machine code with NVRTC, and caches it on disk."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from unrolled.errors import UserError

SHARED = Path(__file__).parent
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


def version() -> str:
    """NVRTC's version."""
    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    return f"{major}.{minor}"


class Program(NamedTuple):
    """A source file, the macros it is compiled with, and a function that reads it and what it includes."""

    source: str
    defines: tuple[str, ...]
    texts: Callable[[], dict[str, str]]


@cache
def machine_code(program: Program, architecture: str) -> bytes:
    """A program as a cubin for `architecture` (such as sm_90), from the cache on disk if possible."""
    options = (*OPTIONS, f"--gpu-architecture={architecture}", *program.defines)
    texts = program.texts()
    kept = cache_folder() / f"{_fingerprint(program.source, texts, options)}.cubin"
    try:
        return kept.read_bytes()
    except OSError:
        pass
    _say_once()
    code = compile_source(program.source, texts, options).code
    _keep(kept, code)
    return code


def sources(folder: Path) -> dict[str, str]:
    """The CUDA files of a folder and of this one, by name."""
    found = sorted((*SHARED.glob("*.cu*"), *folder.glob("*.cu*")))
    return {path.name: path.read_text() for path in found if path.suffix in (".cu", ".cuh")}


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
            "Reinstall nvidia-cuda-nvrtc in the version of torch's CUDA, or name another backend.",
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
