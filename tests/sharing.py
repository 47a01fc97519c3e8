"""Files that take long to make, made once for all processes of a test run."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

FOLDER = "UNROLLED_TEST_FOLDER"  # environment variable: a folder of this run, known to all its processes


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the process that starts the others
        os.environ[FOLDER] = tempfile.mkdtemp(prefix="unrolled-tests-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop(FOLDER), ignore_errors=True)


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """The file or folder that `make` writes at a path; other processes wait for it and use it."""
    place = Path(os.environ[FOLDER]) / name
    done = place.with_name(f"{name}.done")
    with FileLock(place.with_name(f"{name}.lock")):
        if not done.exists():
            shutil.rmtree(place, ignore_errors=True)  # of a process that failed
            make(place)
            done.touch()
    return place
