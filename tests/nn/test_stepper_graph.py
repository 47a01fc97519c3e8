"""A step captured once and replayed, with a stand-in for the CUDA graph: what goes into its buffers and comes out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import unrolled
from tests.tolerances import assert_close
from unrolled.nn import stepper_graph
from unrolled.nn.stepper_graph import CapturedStep


class Replayed:
    """A stand-in for a CUDA graph."""

    def __init__(self, run: Callable[[], object]) -> None:
        self.replay = run


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def recorded(run: Callable[[], Tensor], device: torch.device) -> tuple[Tensor, Replayed]:
        output = run()
        return output, Replayed(lambda: output.copy_(run()))  # as a graph does, it writes to the recorded tensors

    monkeypatch.setattr(stepper_graph, "recorded", recorded)


def test_steps_on_from_its_own_state() -> None:
    layer = unrolled.LSTM(3, 4, num_layers=2, batch_first=True)
    stepper, x = layer.stepper(), torch.randn(2, 5, 3)
    captured = CapturedStep(stepper._torch_step, x[:, 0], stepper.initial_state(2))
    captured.state = stepper.initial_state(2)  # capturing ran some steps
    with torch.no_grad():
        outputs = [captured.feed(frame) for frame in x.unbind(1)]
        expected, (h, c) = layer(x)
    assert_close(torch.stack(outputs, dim=1), expected)
    for found, wanted in zip(captured.state, (h, c), strict=True):
        assert_close(found, wanted.transpose(0, 1))


def test_outputs_belong_to_the_caller() -> None:
    stepper = unrolled.GRU(3, 4).stepper()
    captured = CapturedStep(stepper._torch_step, torch.zeros(1, 3), stepper.initial_state(1))
    captured.state = stepper.initial_state(1)
    first, state = captured.feed(torch.ones(1, 3)), captured.state
    kept = first.clone(), state[0].clone()
    captured.feed(-torch.ones(1, 3))
    assert torch.equal(first, kept[0])
    assert torch.equal(state[0], kept[1])
