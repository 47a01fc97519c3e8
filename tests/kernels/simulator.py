"""Compiles the kernels as they are for a simulated GPU (cuda_simulator.h)."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.kernels.compiled import made

HERE = Path(__file__).parent
OPTIONS = ("-Og", "-std=c++20", "-fPIC", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas")
FORTIFIED = "-U_FORTIFY_SOURCE"  # a fortified jump to another fiber is an error
OUTCOMES = {
    -1: "no such kernel", 1: "a kernel trapped", 2: "all threads wait for ever",
    3: "shared memory was written past its end",
}  # fmt: skip


def library(kernel: str, texts: Mapping[str, str], *words: str) -> ctypes.CDLL:
    """`kernel`, a file of this folder, compiled with the simulator and the kernels' sources `texts`."""
    simulator = _compiled("cuda_simulator.cpp", {"constants.h": texts["constants.h"]}, ("-c",), ".o")
    return ctypes.CDLL(str(_compiled(kernel, texts, (*words, "-shared", "-Wl,-Bsymbolic", str(simulator)), ".so")))


def _compiled(source: str, texts: Mapping[str, str], words: tuple[str, ...], ending: str) -> Path:
    """The output of g++."""
    texts = {**texts, "device.cuh": (HERE / "cuda_simulator.h").read_text(), source: (HERE / source).read_text()}

    def compile_source(output: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in texts.items():
                (Path(folder) / name).write_text(text)
            inputs = ["-I", folder, FORTIFIED, str(Path(folder) / source), *words]
            subprocess.run(["g++", *OPTIONS, *inputs, "-o", str(output)], check=True)

    return made((_version(), OPTIONS, FORTIFIED, words, sorted(texts.items())), ending, compile_source)


@functools.cache
def _version() -> str:
    return subprocess.run(["g++", "--version"], check=True, capture_output=True, text=True).stdout
