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


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def capture(run: Callable[[], Tensor], device: torch.device) -> tuple[Tensor, Callable[[], None]]:
        output = run()  # as a graph does, a replay writes to the tensors of the capture

        def replay() -> None:
            output.copy_(run())

        return output, replay

    monkeypatch.setattr(stepper_graph, "capture", capture)


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
