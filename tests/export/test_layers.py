"""Recurrent layers in ONNX: onnxruntime computes what the layer does, for other sizes than the recorded ones."""

from __future__ import annotations

from typing import Any

import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import unrolled
from tests.tolerances import assert_close
from unrolled.cells import Cell
from unrolled.export.recording import Argument, record
from unrolled.export.writing import write_graph
from unrolled.nn import GRU, LSTM, RNN, Recurrent


def exported(layer: nn.Module, with_state: bool) -> tuple[onnx.ModelProto, Any]:
    """The graph of a layer with lengths, and the function that it was recorded from."""
    rows = 3
    with torch.no_grad():
        _, final = layer(torch.zeros(rows, 2, 4))
    finals = final if isinstance(final, tuple) else (final,)
    axis = 0 if isinstance(layer, Recurrent) else 1
    state = [torch.randn(one.shape) for one in finals] if with_state else []

    def compute(x: Tensor, lengths: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        hidden: Any = None if not given else given if isinstance(final, tuple) else given[0]
        output, last = layer(x, hidden, lengths=lengths)
        return (output, *(last if isinstance(last, tuple) else (last,)))

    arguments = [
        Argument("x", torch.randn(rows, 5, 4), {0: "batch", 1: "time"}),
        Argument("lengths", torch.tensor([5, 3, 0]), {0: "batch"}),
        *(Argument(f"state_{k}", one, {axis: "batch"}) for k, one in enumerate(state)),
    ]
    names = ["output", *(f"final_{k}" for k in range(len(finals)))]
    return write_graph(record(layer, compute, arguments), arguments, names, "layer"), compute


@torch.no_grad()
def check(layer: nn.Module, with_state: bool, node: str) -> None:
    torch.manual_seed(1)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    layer.eval()
    model, compute = exported(layer, with_state)
    kinds = {one.op_type for one in model.graph.node} & {"LSTM", "GRU", "RNN", "Scan"}
    assert kinds == {node}
    session = onnxruntime.InferenceSession(model.SerializeToString())
    axis = 0 if isinstance(layer, Recurrent) else 1
    for rows, steps in ((1, 1), (2, 7), (5, 4)):
        given = {"x": torch.randn(rows, steps, 4), "lengths": torch.randint(0, steps + 1, (rows,))}
        for one in list(session.get_inputs())[2:]:
            shape = [rows if place == axis else size for place, size in enumerate(one.shape)]
            given[one.name] = torch.randn(shape)
        found = session.run(None, {name: value.numpy() for name, value in given.items()})
        for ours, theirs in zip(compute(*given.values()), found, strict=True):
            assert_close(torch.from_numpy(theirs), ours)


@pytest.mark.parametrize(
    ("layer", "options", "node"),
    [
        (LSTM, {}, "LSTM"),
        (LSTM, {"num_layers": 2, "bidirectional": True}, "LSTM"),
        (LSTM, {"peephole": True, "bidirectional": True}, "LSTM"),
        (LSTM, {"bias": False, "num_layers": 2, "combine": "mix"}, "LSTM"),
        (LSTM, {"gate_activation": "hardsigmoid", "bidirectional": True}, "LSTM"),
        (LSTM, {"peephole": "previous", "bidirectional": True}, "Scan"),
        (LSTM, {"layer_norm": True, "num_layers": 2, "combine": "concat"}, "Scan"),
        (LSTM, {"proj_size": 3, "bidirectional": True}, "Scan"),
        (LSTM, {"zoneout": 0.2, "num_layers": 2, "combine": "mean"}, "Scan"),
        (LSTM, {"activation": "gelu"}, "Scan"),
        (GRU, {"num_layers": 2, "bidirectional": True}, "GRU"),
        (GRU, {"reset_after": False, "learned_state": True}, "GRU"),
        (GRU, {"reset_after": False, "layer_norm": True, "bidirectional": True}, "Scan"),
        (RNN, {"nonlinearity": "relu", "bidirectional": True}, "RNN"),
        (RNN, {"nonlinearity": "elu"}, "RNN"),
        (RNN, {"nonlinearity": "softsign", "num_layers": 2}, "RNN"),
        (RNN, {"nonlinearity": "silu", "bidirectional": True}, "Scan"),
    ],
)
def test_drop_ins(layer: Any, options: dict[str, Any], node: str) -> None:
    check(layer(4, 6, batch_first=True, **options), with_state=bool(options), node=node)


@pytest.mark.parametrize("options", [{"bidirectional": True}, {"bidirectional": True, "proj_size": 3}])
def test_without_an_initial_state(options: dict[str, Any]) -> None:
    check(LSTM(4, 6, batch_first=True, **options), with_state=False, node="Scan" if "proj_size" in options else "LSTM")


class Leaky(Cell):
    """h_t = a∘h_{t-1} + (1 - a)∘tanh(W x_t), a = σ(U h_{t-1})."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.w, self.u = nn.Linear(input_size, hidden_size), nn.Linear(hidden_size, hidden_size)

    def project(self, x: Tensor) -> Tensor:
        return torch.tanh(self.w(x))

    def step(self, gates_x: Tensor, state: tuple[Tensor, ...]) -> Any:
        (h,) = state
        a = torch.sigmoid(self.u(h))
        h = a * h + (1 - a) * gates_x
        return h, (h,)


def test_a_cell_of_ones_own() -> None:
    check(Recurrent(Leaky, 4, 6, num_layers=2, bidirectional=True), with_state=True, node="Scan")


def test_resets_are_refused() -> None:
    layer = LSTM(4, 6, batch_first=True)
    arguments = [Argument("x", torch.randn(3, 5, 4), {0: "batch", 1: "time"})]
    resets = torch.zeros(3, 5, dtype=torch.bool)
    with pytest.raises(unrolled.UserError, match="has resets, which an exported graph does not take"):
        record(layer, lambda x: layer(x, resets=resets)[0], arguments)


def test_an_operator_without_a_rule_is_named() -> None:
    class Sorting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sort(dim=1).values

    network = Sorting()
    arguments = [Argument("x", torch.randn(3, 5), {0: "batch"})]
    with pytest.raises(unrolled.UserError, match=r"aten\.sort\.\w+ has no rule for ONNX"):
        write_graph(record(network, network, arguments), arguments, ["y"], "sorted")
