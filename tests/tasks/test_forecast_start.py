"""The linear forecast that training starts from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from tests.tolerances import assert_close
from unrolled import api
from unrolled.jobs import TrainingJob
from unrolled.tasks.forecast.initialize import fit_linear


def test_the_linear_path_finds_a_linear_law() -> None:
    x = torch.randn(500, 6)
    weights = torch.randn(2, 6)
    y = x @ weights.T + torch.tensor([3.0, -1.0])
    fitted, offsets = fit_linear(x, y)
    assert_close(fitted, weights, "weights")
    assert_close(offsets, torch.tensor([3.0, -1.0]), "offsets")


def test_the_linear_path_leaves_noise_alone() -> None:
    """Many inputs, few rows, nothing to find: shrunk until it says little more than the mean."""
    draws = []
    for _ in range(10):
        x, y = torch.randn(120, 60), torch.randn(120, 1)
        fitted, _ = fit_linear(x, y)
        plain = torch.linalg.lstsq(x, y).solution
        draws.append(float(fitted.norm() / plain.norm()))
    assert np.median(draws) < 0.4


def test_an_autoregression_is_known_before_training(tmp_path: Path) -> None:
    """x_t = 1.5 x_{t-1} − 0.8 x_{t-2} + noise: its error is the noise's, or near it with values missing in training."""
    random = np.random.default_rng(2)
    x = np.zeros((3000, 2))
    noise = random.normal(0, 1, x.shape)
    for t in range(2, 3000):
        x[t] = 1.5 * x[t - 1] - 0.8 * x[t - 2] + noise[t]
    x[:, 1] = 100 * x[:, 1] + 5000
    np.savez(tmp_path / "x.npz", inputs=x, lengths=[3000])
    job = TrainingJob(api.configure("forecast", [], {"data.train": str(tmp_path / "x.npz")}))
    columns = job.model.evaluate(tmp_path / "x.npz")["columns"]
    assert columns["1+1"]["mse"] < 1.05
    assert columns["2+1"]["mse"] < 1.05 * 100**2
    x[random.random(x.shape) < 0.05] = np.nan
    np.savez(tmp_path / "holes.npz", inputs=x, lengths=[3000])
    keys = {"data.train": str(tmp_path / "holes.npz"), "data.missing": "mask"}
    job = TrainingJob(api.configure("forecast", [], keys))
    assert job.model.evaluate(tmp_path / "x.npz")["columns"]["1+1"]["mse"] < 1.6
