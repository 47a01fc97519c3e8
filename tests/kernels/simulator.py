"""Compiles the kernels as they are for a simulated GPU (cuda_simulator.h)."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).parent
COMPILED = HERE.parents[1] / "build" / "simulated"  # shared by all test processes, and kept for later runs
KEPT_DAYS = 14
OPTIONS = ("-O1", "-std=c++20", "-fPIC", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas")
FORTIFIED = "-U_FORTIFY_SOURCE"  # a fortified jump to another fiber is an error
OUTCOMES = {
    -1: "no such kernel", 1: "a kernel trapped", 2: "all threads wait for ever",
    3: "shared memory was written past its end",
}  # fmt: skip


def library(kernel: str, texts: Mapping[str, str], *words: str) -> ctypes.CDLL:
    """`kernel`, a file of this folder, compiled with the simulator and the kernels' sources `texts`."""
    constants = texts["constants.h"]
    simulator = _compiled("cuda_simulator.cpp", {"constants.h": constants}, ("-c",), ".o")
    return ctypes.CDLL(str(_compiled(kernel, texts, (*words, "-shared", "-Wl,-Bsymbolic", str(simulator)), ".so")))


def _compiled(source: str, texts: Mapping[str, str], words: tuple[str, ...], ending: str) -> Path:
    """The output of g++, compiled once for all that it depends on."""
    texts = {**texts, "device.cuh": (HERE / "cuda_simulator.h").read_text(), source: (HERE / source).read_text()}
    facts = (_version(), OPTIONS, words, sorted(texts.items()))
    output = COMPILED / (hashlib.sha256(repr(facts).encode()).hexdigest() + ending)
    if not output.exists():
        _compile(source, texts, words, output)
    os.utime(output)
    return output


def _compile(source: str, texts: Mapping[str, str], words: tuple[str, ...], output: Path) -> None:
    COMPILED.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=COMPILED) as folder:
        for name, text in texts.items():
            (Path(folder) / name).write_text(text)
        unfinished = Path(folder) / "output"
        inputs = ["-I", folder, FORTIFIED, str(Path(folder) / source), *words]
        subprocess.run(["g++", *OPTIONS, *inputs, "-o", str(unfinished)], check=True)
        unfinished.replace(output)


@functools.cache
def _version() -> str:
    """The compiler's version; its first call in a process also drops what no run has used for some days."""
    for path in COMPILED.glob("*.*o"):
        if path.stat().st_mtime < time.time() - KEPT_DAYS * 24 * 3600:
            path.unlink(missing_ok=True)
    return subprocess.run(["g++", "--version"], check=True, capture_output=True, text=True).stdout
