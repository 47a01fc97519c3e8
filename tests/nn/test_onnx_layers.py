"""torch.onnx.export(dynamo=True) of networks with our layers, run by onnxruntime at other sizes."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from typing import Any

import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import unrolled
from tests.tolerances import assert_close

pytest.importorskip("onnxscript")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """torch's exporter warns of its own deprecations, and misses torchvision."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Network(nn.Module):
    """A layer with an initial state and lengths: all results are results of the network."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.rnn = layer
        self.out = nn.Linear(layer(torch.zeros(1, 1, 3))[0].shape[-1], 2)

    def forward(self, x: Tensor, states: list[Tensor], lengths: Tensor | None) -> tuple[Tensor, ...]:
        hidden: Any = None
        if states:
            hidden = tuple(states) if len(states) > 1 else states[0]
        output, final = self.rnn(x, hidden, lengths=lengths)
        return self.out(output), *(final if isinstance(final, tuple) else (final,))


def arguments(layer: Any, batch: int, steps: int, full: bool) -> tuple[Tensor, list[Tensor], Tensor | None]:
    x = torch.randn(batch, steps, 3) if layer.batch_first else torch.randn(steps, batch, 3)
    if not full:
        return x, [], None
    runs = layer.num_layers * (2 if layer.bidirectional else 1)
    states = [torch.randn(runs, batch, 4) for _ in layer.cell_class.state_names]
    return x, states, torch.tensor([steps, 0, *torch.randint(1, steps + 1, (batch - 2,)).tolist()])


def exported(layer: Any, full: bool = False) -> tuple[Network, Any]:
    network = Network(layer).eval()
    free = torch.export.Dim.DYNAMIC
    given = arguments(layer, 3, 7, full)
    shapes = ({0: free, 1: free}, [{1: free}] * len(given[1]), {0: free} if full else None)
    program: Any = torch.onnx.export(network, given, dynamo=True, dynamic_shapes=shapes, verbose=False)
    return network, program.model_proto


@pytest.mark.parametrize(
    ("name", "options", "nodes"),
    [
        ("LSTM", {"num_layers": 2, "peephole": True}, 2),
        ("LSTM", {"batch_first": True}, 1),
        ("GRU", {"num_layers": 2}, 2),
        ("GRU", {"reset_after": False, "bidirectional": True, "batch_first": True}, 2),
        ("RNN", {"nonlinearity": "relu", "bias": False, "batch_first": True}, 1),
    ],
)
def test_states_and_lengths(name: str, options: dict[str, Any], nodes: int) -> None:
    layer = getattr(unrolled, name)(3, 4, **options)
    network, model = exported(layer, full=True)
    assert [node.op_type for node in model.graph.node].count(name) == nodes
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    for batch, steps in ((3, 7), (5, 13), (2, 3)):
        x, states, lengths = arguments(layer, batch, steps, full=True)
        given = [x, *states, lengths]
        found = session.run(None, {n: v.numpy() for n, v in zip(names, given, strict=True) if v is not None})
        for mine, right in zip(found, network(x, states, lengths), strict=True):
            assert_close(torch.from_numpy(mine), right)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("LSTM", {"activation": "softsign", "gate_activation": "hardsigmoid", "output_activation": "elu"}),
        ("GRU", {"learned_state": True, "combine": "mix", "num_layers": 2, "activation": "leaky_relu"}),
        ("RNN", {"nonlinearity": "softplus", "dtype": torch.float32}),
    ],
)
def test_options(name: str, options: dict[str, Any]) -> None:
    layer = getattr(unrolled, name)(3, 4, batch_first=True, **options)
    network, model = exported(layer)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = torch.randn(4, 11, 3)
    for mine, right in zip(session.run(None, {"x": x.numpy()}), network(x, [], None), strict=True):
        assert_close(torch.from_numpy(mine), right)


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("LSTM", {"layer_norm": True}, "an ONNX LSTM node has no layer norm"),
        ("LSTM", {"proj_size": 2}, "an ONNX LSTM node has no projection"),
        ("LSTM", {"peephole": "previous"}, "an ONNX LSTM node has no peephole of the output gate at the previous c"),
        ("GRU", {"zoneout": 0.1}, "an ONNX GRU node has no zoneout"),
        ("RNN", {"nonlinearity": "gelu"}, "an ONNX RNN node has no activation gelu"),
    ],
)
def test_other_options_are_an_error(name: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(Exception, match="Failed to export the model") as caught:
        exported(getattr(unrolled, name)(3, 4, batch_first=True, **options))
    message = "torch.onnx.export cannot write this layer: " + reason
    assert message in str(caught.value.__cause__) or message in str(caught.value)


def test_reference_is_a_loop_of_the_examples_length() -> None:
    """Asked for by name, it writes what no node can."""
    layer = unrolled.GRU(3, 4, zoneout=0.1, batch_first=True, backend="reference")
    network, x = Network(layer).eval(), torch.randn(2, 5, 3)
    program: Any = torch.onnx.export(network, (x, [], None), dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])
    assert_close(torch.from_numpy(session.run(None, {"x": x.numpy()})[0]), network(x, [], None)[0])
