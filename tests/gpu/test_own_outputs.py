"""Training on own outputs on a GPU: the losses and gradients of a loop on the CPU. Skipped where there is none."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.tasks.forecast import test_own_rows as rows
from tests.tasks.own_outputs import FAMILIES
from tests.tasks.test_own_outputs import by_loop, gradients, training
from unrolled.tasks.contract import Training
from unrolled.tasks.forecast.config import ForecastTraining
from unrolled.tasks.forecast.task import Forecast

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
CLOSE: dict[str, Any] = {"rtol": 1e-3, "atol": 1e-3}  # of float32


@pytest.fixture(autouse=True)
def without_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN's products have 10 bits by default, and a forecast that is fed back passes through many of them."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.mark.parametrize("name", FAMILIES)
def test_tokens(name: str) -> None:
    family = FAMILIES[name]()
    expected, _ = by_loop(family, 1.0, "argmax")
    wanted = gradients(family.network, expected)
    network = family.network.float().cuda()
    entry = None if family.entry is None else tuple(_there(part) for part in family.entry)
    settings = training(family, {"teacher_forcing": "never", "pick": "argmax"})
    loss = family.task.loss(network, family.batch.to("cuda"), entry, settings)
    torch.testing.assert_close(loss.sum.cpu().double(), expected.detach(), **CLOSE)
    for weight, gradient in gradients(network, loss.sum).items():
        torch.testing.assert_close(gradient.cpu().double(), wanted[weight], **CLOSE)


def test_forecasts() -> None:
    network = rows.a_network("every column")
    batch = rows.a_batch(network, False)
    entry = (torch.randn(4, 1, 5).double(), torch.randn(4, rows.LAGS, 2).double())
    settings = ForecastTraining(teacher_forcing="never", feedback="steps")
    expected = Forecast().loss(network, batch, entry, Training(settings))
    wanted = rows.gradients(network, expected.sum)
    there = network.float().cuda()
    single = type(batch)(batch.inputs.float(), batch.targets.float(), batch.lengths, batch.resets).to("cuda")
    loss = Forecast().loss(there, single, tuple(map(_there, entry)), Training(settings))
    torch.testing.assert_close(loss.sum.cpu().double(), expected.sum.detach(), **CLOSE)
    for found, gradient in zip(rows.gradients(there, loss.sum), wanted, strict=True):
        torch.testing.assert_close(found.cpu().double(), gradient, **CLOSE)


def _there(part: torch.Tensor) -> torch.Tensor:
    return part.float().cuda() if part.is_floating_point() else part.cuda()
