"""Commands in several processes, started by torchrun as users start them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT = 120  # seconds


def environment(**more: str) -> dict[str, str]:
    """Ours without the variables of a torchrun around us; one thread in each process."""
    kept = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **more}


def torchrun_words(words: list[str], processes: int = 2, options: tuple[str, ...] = ("--standalone",)) -> list[str]:
    start = [sys.executable, "-m", "torch.distributed.run", *options, "--nproc-per-node", str(processes)]
    return [*start, "-m", *words]


def torchrun(
    words: list[str],
    processes: int = 2,
    options: tuple[str, ...] = ("--standalone",),
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `python -m WORDS` in several processes."""
    return subprocess.run(
        torchrun_words(words, processes, options),
        env=environment(**variables or {}),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def said(stderr: str) -> list[str]:
    """The messages of the command: not those of torchrun."""
    return [line for line in stderr.splitlines() if line.startswith("unrolled: ")]
