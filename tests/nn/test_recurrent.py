"""A cell of the user's own, in fifteen lines: it stacks, runs both ways, takes lengths and resets, trains."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.tolerances import assert_close
from unrolled import GRU, LSTM, Cell, Recurrent


class MinimalGatedUnit(Cell):
    """One gate for both jobs of the GRU's two (Zhou et al. 2016)."""

    gate_names = ("f", "n")

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.w = nn.Linear(input_size, 2 * hidden_size)
        self.u_f = nn.Linear(hidden_size, hidden_size, bias=False)
        self.u_n = nn.Linear(hidden_size, hidden_size, bias=False)

    def project(self, x: Tensor) -> Tensor:
        return self.w(x)  # type: ignore[no-any-return]

    def step(self, gates_x: Tensor, state: tuple[Tensor, ...]) -> tuple[Any, ...]:
        (h,) = state
        f_x, n_x = gates_x.chunk(2, -1)
        f = torch.sigmoid(f_x + self.u_f(h))
        n = torch.tanh(n_x + self.u_n(f * h))
        h = (1 - f) * h + f * n
        return h, (h,), (f, n)


class LSTMAgain(Cell):
    """torch's own cell as a user would wrap it: two states, the output one of them."""

    state_names = ("h", "c")

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.cell = nn.LSTMCell(input_size, hidden_size)

    def step(self, gates_x: Tensor, state: tuple[Tensor, ...]) -> tuple[Any, ...]:
        h, c = self.cell(gates_x, state)
        return h, (h, c)


class Readout(Cell):
    """An output that is not the state, and of another width."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.u, self.y = nn.Linear(input_size + hidden_size, hidden_size), nn.Linear(hidden_size, 2)

    @property
    def output_size(self) -> int:
        return 2

    def step(self, gates_x: Tensor, state: tuple[Tensor, ...]) -> tuple[Any, ...]:
        h = torch.tanh(self.u(torch.cat([gates_x, *state], -1)))
        return self.y(h), (h,)


def test_a_wrapped_torch_cell_is_torchs_layer() -> None:
    """Two layers, both ways, ragged, with a state: equal to torch.nn.LSTM."""
    ours = Recurrent(LSTMAgain, 3, 4, num_layers=2, bidirectional=True)
    theirs = LSTM(3, 4, 2, batch_first=True, bidirectional=True)
    for name, cell in ours.cells.items():
        cell.cell.load_state_dict(  # type: ignore[union-attr]
            {k: getattr(theirs, f"{k}_{name}") for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
        )
    x, h, c = torch.randn(3, 7, 3), torch.randn(4, 3, 4), torch.randn(4, 3, 4)
    output, final = ours(x, (h.transpose(0, 1), c.transpose(0, 1)), lengths=[7, 0, 4])
    expected, expected_final = theirs(x, (h, c), lengths=[7, 0, 4])
    assert_close(output, expected)
    for actual, wanted in zip(final, expected_final, strict=True):
        assert_close(actual.transpose(0, 1), wanted)


def test_custom_gates_are_traced() -> None:
    layer = Recurrent(MinimalGatedUnit, 3, 4, num_layers=2)
    trace = layer.trace(torch.randn(2, 5, 3))
    assert trace.gates["l1"]["f"].shape == (2, 5, 4)
    f, n = trace.gates["l0"]["f"], trace.gates["l0"]["n"]
    h = trace.states["l0"]["h"]
    assert_close(h[:, 1], (1 - f[:, 1]) * h[:, 0] + f[:, 1] * n[:, 1])


@pytest.mark.parametrize("how", ["last", "concat", "mean", "mix"])
def test_every_option_trains(how: str) -> None:
    """All options at once; every parameter gets a gradient."""
    layer = Recurrent(
        MinimalGatedUnit,
        3,
        4,
        num_layers=2,
        bidirectional=True,
        dropout=0.1,
        variational_dropout=0.1,
        zoneout=0.1,
        learned_state=True,
        combine=how,
    )
    x = torch.randn(2, 6, 3)
    output, (h,) = layer(
        x, lengths=[6, 3], resets=torch.tensor([[False] * 6, [True, False, True, False, False, False]])
    )
    assert output.shape == (2, 6, 16 if how == "concat" else 8)
    assert h.shape == (2, 4, 4)
    output.pow(2).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in layer.parameters())


def test_an_output_of_its_own_stacks_and_is_masked() -> None:
    layer = Recurrent(Readout, 3, 4, num_layers=2, bidirectional=True)
    output, (h,) = layer(torch.randn(2, 5, 3), lengths=[5, 2])
    assert output.shape == (2, 5, 4)
    assert output[1, 2:].abs().sum() == 0
    assert h.shape == (2, 4, 4)
    trace = layer.trace(torch.randn(2, 5, 3))
    loss = trace.output.pow(2).sum()
    gradients = trace.weight_gradients(loss)
    expected = torch.autograd.grad(loss, [layer.get_parameter(name) for name in gradients])
    for actual, wanted in zip(gradients.values(), expected, strict=True):
        assert_close(actual.sum(0), wanted)


def test_it_learns() -> None:
    """Remember the first of eight inputs: chance is 0.69 nats."""
    layer, head = Recurrent(MinimalGatedUnit, 1, 16), nn.Linear(16, 1)
    optimizer = torch.optim.Adam([*layer.parameters(), *head.parameters()], lr=0.02)
    loss: Any = None
    for _ in range(150):
        x = torch.randint(0, 2, (64, 8, 1)).float()
        output, _ = layer(x)
        loss = nn.functional.binary_cross_entropy_with_logits(head(output[:, -1]), x[:, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1


def test_it_copies_and_says_its_engine() -> None:
    layer, x = Recurrent(MinimalGatedUnit, 3, 4), torch.randn(2, 5, 3)
    assert torch.equal(copy.deepcopy(layer)(x)[0], layer(x)[0])
    choice = layer.backend_for(x)
    assert choice.engine == "reference"
    assert "MinimalGatedUnit" in choice.reason


def test_a_layer_class_by_cell_class() -> None:
    from unrolled.nn import layer

    assert isinstance(layer(MinimalGatedUnit, 3, 4, num_layers=2), Recurrent)
    assert isinstance(layer("gru", 3, 4), GRU)
