"""Outputs of compilers, made once from all that they depend on, for all test processes and later runs."""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Callable
from pathlib import Path

from unrolled.kernels.cuda import compiler
from unrolled.kernels.cuda.compiler import Program

FOLDER = Path(__file__).parents[2] / "build" / "tests"
KEPT_DAYS = 14


def made(facts: object, ending: str, make: Callable[[Path], None]) -> Path:
    """The file that `make` writes to a path, from the facts alone."""
    folder = _folder()
    output = folder / (hashlib.sha256(repr(facts).encode()).hexdigest() + ending)
    if not output.exists():
        unfinished = folder / f"{output.name}.{time.monotonic_ns()}.new"
        make(unfinished)
        unfinished.replace(output)
    output.touch()
    return output


@functools.cache
def _folder() -> Path:
    """The folder, without what no run has used for some days."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in FOLDER.iterdir():
        if path.stat().st_mtime < time.time() - KEPT_DAYS * 24 * 3600:
            path.unlink(missing_ok=True)
    return FOLDER


@functools.cache
def gpu_report(program: Program, architecture: str) -> str:
    """The log of NVRTC and ptxas for a program that compiles, without a warning, to machine code of an NVIDIA GPU."""
    from cuda.bindings import nvrtc

    texts = program.texts()
    options = (*compiler.OPTIONS, f"--gpu-architecture={architecture}", *program.defines, "--ptxas-options=-v")

    def compile_program(output: Path) -> None:
        compiled = compiler.compile_source(program.source, texts, options)
        assert compiled.code[:4] == b"\x7fELF"
        output.write_text(compiled.log)

    facts = (nvrtc.nvrtcVersion(), Path(compiler.__file__).read_text(), program.source, sorted(texts.items()), options)
    log = made(facts, ".log", compile_program).read_text()
    assert "warning" not in log
    return log
