"""Models and files that the tests here share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unrolled import Model, api

SMALL: dict[str, Any] = {
    "model.hidden_size": 8,
    "model.dropout": 0.0,
    "train.batch_size": 4,
    "train.window": 20,
    "train.max_steps": 6,
    "train.eval_every": 3,
}


def waves(steps: int = 400, seed: int = 0) -> np.ndarray:
    t = np.arange(steps)
    noise = np.random.default_rng(seed).normal(0, 0.05, (steps, 2))
    return np.stack([50 + 10 * np.sin(t / 5), np.cos(t / 5)], axis=1) + noise * [10, 1]


def table(path: Path, values: np.ndarray, names: str = "a,b") -> Path:
    np.savetxt(path, values, delimiter=",", header=names, comments="", fmt="%.9g")
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return table(tmp_path_factory.mktemp("data") / "waves.csv", waves())


@pytest.fixture(scope="module")
def model(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    keys = {**SMALL, "train.max_steps": 60, "train.eval_every": 20}
    return api.train("forecast", train=file, out=tmp_path_factory.mktemp("runs") / "waves", set=keys, quiet=True)


def small(file: Path, folder: Path, **changes: Any) -> Model:
    keys = {key.replace("__", "."): value for key, value in changes.items()}
    return api.train("forecast", train=file, out=folder, set={**SMALL, **keys}, quiet=True)
