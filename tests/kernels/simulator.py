"""Compiles the kernels as they are for a simulated GPU (cuda_simulator.h)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
OUTCOMES = {1: "a kernel trapped", 2: "all threads wait for ever", 3: "shared memory was written past its end"}


def gcc(folder: Path, texts: dict[str, str], *words: object) -> None:
    """Run g++ beside the kernels' sources, with the simulator's device.cuh."""
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text)
    shutil.copy(HERE / "cuda_simulator.h", folder / "device.cuh")
    options = ["-O1", "-std=c++20", "-fPIC", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-I", folder]
    options += ["-U_FORTIFY_SOURCE"]  # which takes a jump to another fiber for an error
    subprocess.run(["g++", *map(str, [*options, *words])], check=True)
