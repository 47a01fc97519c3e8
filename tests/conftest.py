"""Settings of every test run."""

from __future__ import annotations

import gc
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

# The tensors here are tiny, and tests run side by side: threads would only wait for each other. OpenMP and BLAS read
# this when they are loaded, here and in every process that a test starts.
os.environ["OMP_NUM_THREADS"] = "1"

import pytest

from tests.sharing import made_once, pytest_configure, pytest_unconfigure

if TYPE_CHECKING:
    from unrolled.model import Model

__all__ = ["pytest_configure", "pytest_unconfigure"]


def pytest_collection_finish() -> None:
    """Garbage collection leaves out what has been imported and collected: millions of objects that stay to the end."""
    if "torch" in sys.modules:  # not in the process that starts the workers, which imports nothing large
        sys.modules["torch"].set_num_threads(1)
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def own_seed(request: pytest.FixtureRequest) -> None:
    """Each test draws its own numbers, the same in every run and in any order."""
    import torch

    torch.manual_seed(zlib.crc32(request.node.nodeid.encode()))


CURVES = "unrolled.jobs.driving.curves"


@pytest.fixture(scope="session", autouse=True)
def short_runs() -> Iterator[None]:
    """Training in this process draws no curves and writes short samples: they take most of the time of small runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CURVES, lambda folder, metric: None)
        patch.setattr("unrolled.tasks.generate.task.SAMPLE_TOKENS", 20)
        yield


@pytest.fixture
def with_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training draws its curves, as it does for users."""
    from unrolled.see.figures.curves import curves

    monkeypatch.setattr(CURVES, curves)


@pytest.fixture(scope="session")
def data() -> Path:
    from tests.see.models import write_files  # what it needs is not there wherever there is a GPU

    return made_once("data", write_files)


@pytest.fixture(scope="session")
def run_of(data: Path) -> Callable[[str], Path]:
    """The run folder of a kind's model, trained when it is first asked for."""
    from tests.see.models import train

    return lambda kind: made_once(kind, lambda folder: train(kind, data, folder))


@pytest.fixture(scope="session")
def model_of(run_of: Callable[[str], Path]) -> Callable[[str], Model]:
    from unrolled import api

    found: dict[str, Model] = {}

    def find(kind: str) -> Model:
        if kind not in found:
            found[kind] = api.load(run_of(kind))
        return found[kind]

    return find
