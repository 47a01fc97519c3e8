"""Tests an installed wheel: `unrolled doctor` finds the native engine, and the core tests pass on it.

Usage: python packaging/test_installed.py [pytest options]

It needs pytest and hypothesis. The tests are copied away from the repository, so that the installed package is tested
and not the source beside it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
CORE = [
    "tests/kernels/test_native.py",
    "tests/kernels/test_vocabulary.py",
    "tests/nn/test_stepper.py",
    "tests/nn/test_ctc.py",
    "tests/search",
    "--ignore=tests/search/scorers/test_scorers.py",  # stored models of every task: these need the extras
]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "tests", Path(folder) / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", folder)
        environment = {**os.environ, "PYTHONPATH": folder}
        for command in (
            ["unrolled", "doctor", "--need", "native"],
            ["pytest", "-q", "-p", "no:cacheprovider", *CORE, *sys.argv[1:]],
        ):
            subprocess.run([sys.executable, "-m", *command], cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    main()
