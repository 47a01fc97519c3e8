"""RNN, LSTM and GRU nodes with random weights in onnxruntime, against our layers with the same weights.

onnxruntime computes these in float32 only. It differs from us in one point: the final state of an empty sequence is
zero even where an initial state was given, while ours is that initial state; one test holds both to it, and compares
the rest of the batch. Not covered, as our layers do not have them: `clip`, `input_forget`, and activations that differ
between the two directions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from onnx import ModelProto, helper
from torch import Tensor

from tests.conformance import engines_for
from tests.engines import ON_CPU
from tests.kernels.pairs import pairwise
from tests.tolerances import assert_close
from unrolled import kernels, nn
from unrolled.cells import Activation, AnyCell, GRUCell, LSTMCell, RNNCell, activation
from unrolled.errors import UserError
from unrolled.kernels import ENGINES, choose, make_job

Array = NDArray[np.generic]

# Where ONNX has the rows of our gates, in our order: i, f, g, o in i, o, f, c; r, z, n in z, r, h.
GATES = {"RNN": (0,), "LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2)}
PEEPHOLES = (0, 2, 1)  # i, f, o in i, o, f
INPUTS = {
    "RNN": ("X", "W", "R", "B", "sequence_lens", "initial_h"),
    "LSTM": ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P"),
    "GRU": ("X", "W", "R", "B", "sequence_lens", "initial_h"),
}
OUTPUTS = {"RNN": ("Y", "Y_h"), "LSTM": ("Y", "Y_h", "Y_c"), "GRU": ("Y", "Y_h")}
DIRECTIONS = ("forward", "reverse", "bidirectional")


@dataclass(frozen=True)
class Node:
    """An ONNX node and what goes into it; `activations` are ours for the node's f, g and h, in that order."""

    op: str
    inputs: Mapping[str, Array]
    attributes: Mapping[str, Any]
    activations: tuple[str | Activation, ...] = ()

    @property
    def direction(self) -> str:
        return str(self.attributes.get("direction", "forward"))

    @property
    def batch_first(self) -> bool:
        return bool(self.attributes.get("layout", 0))

    def tensor(self, name: str) -> Tensor | None:
        return torch.from_numpy(np.array(self.inputs[name])) if name in self.inputs else None

    @property
    def x(self) -> Tensor:
        """(B, T, D)."""
        x = torch.from_numpy(np.array(self.inputs["X"]))
        return x if self.batch_first else x.transpose(0, 1)

    @property
    def lengths(self) -> Tensor | None:
        lengths = self.tensor("sequence_lens")
        return None if lengths is None else lengths.long()

    @property
    def states(self) -> list[Tensor]:
        """The initial states, (directions, B, H) each; empty where none is given."""
        given = [self.tensor(name) for name in ("initial_h", "initial_c")]
        return [s.transpose(0, 1) if self.batch_first else s for s in given if s is not None]


def parameters(node: Node, direction: int) -> dict[str, Tensor]:
    """The weights of one direction under our names, rows in our order."""

    def rows(weight: Tensor, order: Iterable[int]) -> Tensor:
        blocks = weight.reshape(-1, node.attributes["hidden_size"], *weight.shape[1:])
        return torch.cat([blocks[index] for index in order])

    order = GATES[node.op]
    w, r, b, p = (node.tensor(name) for name in "WRBP")
    assert w is not None
    assert r is not None
    found = {"weight_ih": rows(w[direction], order), "weight_hh": rows(r[direction], order)}
    if b is not None:
        bias_ih, bias_hh = b[direction].chunk(2)
        found |= {"bias_ih": rows(bias_ih, order), "bias_hh": rows(bias_hh, order)}
    if p is not None:
        found["weight_peephole"] = rows(p[direction], PEEPHOLES).reshape(3, -1)
    return found


def options(node: Node) -> dict[str, Any]:
    """The node's attributes as options of our layer."""
    found: dict[str, Any] = {}
    if node.op == "GRU":
        found["reset_after"] = bool(node.attributes.get("linear_before_reset", 0))
    if node.activations and node.op == "RNN":
        found["nonlinearity"] = node.activations[0]
    elif node.activations:
        found |= dict(zip(("gate_activation", "activation", "output_activation"), node.activations, strict=False))
    return found


def our_layer(node: Node, engine: str) -> nn.RNN | nn.LSTM | nn.GRU:
    """A layer with the node's weights, forward or bidirectional."""
    given = {"bias": "B" in node.inputs, "bidirectional": node.direction == "bidirectional", "batch_first": True}
    extra = options(node) | ({"peephole": "current"} if "P" in node.inputs else {})
    layer = nn.layer(node.op.lower(), node.x.shape[-1], node.attributes["hidden_size"], **given, **extra)
    assert isinstance(layer, nn.RNN | nn.LSTM | nn.GRU)
    weights = {f"{kind}_l0": weight for kind, weight in parameters(node, 0).items()}
    if node.direction == "bidirectional":
        weights |= {f"{kind}_l0_reverse": weight for kind, weight in parameters(node, 1).items()}
    layer.load_state_dict(weights)
    layer.backend = engine
    return layer


def our_cell(node: Node) -> AnyCell:
    """A cell with the weights of the node's one direction."""
    found = {
        "activation" if name == "nonlinearity" else name: value if name == "reset_after" else activation(value)
        for name, value in options(node).items()
    }
    cells: dict[str, Any] = {"RNN": RNNCell, "LSTM": LSTMCell, "GRU": GRUCell}
    cell: AnyCell = cells[node.op](**parameters(node, 0), **found)
    return cell


def engines(node: Node) -> list[str]:
    """The engines that compute the node."""
    states = tuple(node.states)
    if node.direction == "reverse":
        state = tuple(s[0] for s in states) if states else None
        job = make_job(our_cell(node), node.x, state, node.lengths, None, None, None, reverse=True)
        return engines_for(lambda engine: choose(job, engine))
    hx: Any = None if not states else states if node.op == "LSTM" else states[0]
    layer = our_layer(node, "auto")

    def accepts(engine: str) -> None:
        layer.backend = engine
        layer.backend_for(node.x, hx, lengths=node.lengths)

    return engines_for(accepts)


def ours(node: Node, engine: str) -> dict[str, Tensor]:
    """Y, Y_h and Y_c of our layer, or of a reverse scan, in ONNX's layout."""
    directions, states = 2 if node.direction == "bidirectional" else 1, tuple(node.states)
    if node.direction == "reverse":
        state = tuple(s[0] for s in states) if states else None
        output, final = kernels.scan(our_cell(node), node.x, state, lengths=node.lengths, reverse=True, backend=engine)
        final = tuple(s.unsqueeze(0) for s in final)
    else:
        hx: Any = None if not states else states if node.op == "LSTM" else states[0]
        output, last = our_layer(node, engine)(node.x, hx, lengths=node.lengths)
        final = last if node.op == "LSTM" else (last,)
    y = output.reshape(*output.shape[:2], directions, -1)  # (B, T, directions, H)
    if node.batch_first:
        final = tuple(s.transpose(0, 1) for s in final)
    else:
        y = y.permute(1, 2, 0, 3)
    return dict(zip(OUTPUTS[node.op], (y, *final), strict=True))


def onnx_model(node: Node) -> ModelProto:
    names = [name if name in node.inputs else "" for name in INPUTS[node.op]]
    outputs = OUTPUTS[node.op]
    made = helper.make_node(node.op, names, outputs, **node.attributes)
    float32 = helper.np_dtype_to_tensor_dtype(np.dtype(np.float32))
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in node.inputs.items()
    ]
    graph = helper.make_graph(
        [made], "one_node", inputs, [helper.make_tensor_value_info(name, float32, None) for name in outputs]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def theirs(node: Node) -> dict[str, Array]:
    """Y, Y_h and Y_c of onnxruntime."""
    one_thread = onnxruntime.SessionOptions()
    one_thread.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        onnx_model(node).SerializeToString(), one_thread, providers=["CPUExecutionProvider"]
    )
    return dict(zip(OUTPUTS[node.op], session.run(None, dict(node.inputs)), strict=True))


# What a node can be beyond its sizes; GRU is both of ONNX's conventions.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "rnn": ("RNN", {}),
    "lstm": ("LSTM", {}),
    "peephole": ("LSTM", {}),
    "gru": ("GRU", {"linear_before_reset": 1}),
    "gru_before": ("GRU", {"linear_before_reset": 0}),
}


def random_node(
    variant: str,
    *,
    steps: int = 7,
    batch: int = 3,
    hidden: int = 4,
    direction: str = "forward",
    lengths: tuple[int, ...] | None = None,
    initial: bool = True,
    bias: bool = True,
    our_activations: tuple[str | Activation, ...] = (),
    **attributes: Any,
) -> Node:
    """A node with weights of standard deviation 1, the recurrent ones 1/√H: gates open and close, nothing explodes."""
    op, own = VARIANTS[variant]
    directions, features, rows = 2 if direction == "bidirectional" else 1, 3, len(GATES[op]) * hidden
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> NDArray[np.float32]:
        return rng.standard_normal(shape).astype(np.float32)

    inputs: dict[str, Array] = {
        "X": normal(steps, batch, features),
        "W": normal(directions, rows, features),
        "R": normal(directions, rows, hidden) / np.sqrt(np.float32(hidden)),
    }
    if bias:
        inputs["B"] = normal(directions, 2 * rows)
    if lengths is not None:
        inputs["sequence_lens"] = np.array(lengths, dtype=np.int32)
    if initial:
        inputs["initial_h"] = normal(directions, batch, hidden)
        if op == "LSTM":
            inputs["initial_c"] = normal(directions, batch, hidden)
    if variant == "peephole":
        inputs["P"] = normal(directions, 3 * hidden)
    return Node(op, inputs, {"hidden_size": hidden, "direction": direction, **own, **attributes}, our_activations)


def random_nodes(**choices: tuple[Any, ...]) -> list[tuple[str, Node]]:
    """Nodes in which every two values of two choices meet; each runs on every engine."""
    choices = {"variant": tuple(VARIANTS), "direction": tuple(DIRECTIONS), **choices}
    cases = [case for seed in range(2) for case in pairwise(choices, seed)]
    return list({"-".join(map(str, case.values())): random_node(**case) for case in cases}.items())


SIZES = random_nodes(steps=(1, 2, 63), batch=(1, 3), hidden=(1, 4, 17))
# the last: no sequence has all steps
LENGTHS = random_nodes(lengths=((7, 5, 2), (2, 7, 4), (1, 3, 3), (6, 6, 6)), initial=(True, False))
EMPTY = random_nodes(lengths=((0, 7, 3), (5, 0, 2), (2, 1, 0)))
WITHOUT_BIAS = [
    (f"{variant}-{direction}", random_node(variant, direction=direction, bias=False, initial=False))
    for variant in VARIANTS
    for direction in DIRECTIONS
]


def scaled_tanh(x: Tensor) -> Tensor:
    return 1.7 * torch.tanh(0.6 * x)


def steep_hardsigmoid(x: Tensor) -> Tensor:
    return (0.2 * x + 0.5).clamp(0, 1)


def thresholded_relu(x: Tensor) -> Tensor:
    return F.threshold(x, 0.3, 0.0)


def steep_elu(x: Tensor) -> Tensor:
    return F.elu(x, alpha=0.7)


# Ours, a name or a function, and ONNX's: name, alpha and beta, None where the function has none.
ACTIVATIONS: dict[str, tuple[str | Activation, str, float | None, float | None]] = {
    "affine": ("identity", "Affine", 1.0, 0.0),
    "elu": ("elu", "Elu", 1.0, None),
    "hardsigmoid": ("hardsigmoid", "HardSigmoid", 1 / 6, 0.5),
    "leaky_relu": ("leaky_relu", "LeakyRelu", 0.01, None),
    "relu": ("relu", "Relu", None, None),
    "sigmoid": ("sigmoid", "Sigmoid", None, None),
    "softplus": ("softplus", "Softplus", None, None),
    "softsign": ("softsign", "Softsign", None, None),
    "tanh": ("tanh", "Tanh", None, None),
    "own_elu": (steep_elu, "Elu", 0.7, None),
    "own_hardsigmoid": (steep_hardsigmoid, "HardSigmoid", 0.2, 0.5),
    "own_scaled_tanh": (scaled_tanh, "ScaledTanh", 1.7, 0.6),
    "own_thresholded_relu": (thresholded_relu, "ThresholdedRelu", 0.3, None),
}


def activated_node(variant: str, direction: str, names: tuple[str, ...]) -> Node:
    """A node with these activations; alphas and betas are listed for the functions that have them, in order."""
    chosen = [ACTIVATIONS[name] for name in names]
    repeated = chosen * (2 if direction == "bidirectional" else 1)
    attributes: dict[str, Any] = {"activations": [onnx_name for _, onnx_name, _, _ in repeated]}
    if alphas := [alpha for _, _, alpha, _ in repeated if alpha is not None]:
        attributes["activation_alpha"] = alphas
    if betas := [beta for _, _, _, beta in repeated if beta is not None]:
        attributes["activation_beta"] = betas
    mapped = tuple(mine for mine, _, _, _ in chosen)
    return random_node(variant, direction=direction, lengths=(4, 7, 2), our_activations=mapped, **attributes)


# The places of the activations: one, candidate and (LSTM) output in turn, and all different.
PLACES: dict[str, list[tuple[str, ...]]] = {
    "rnn": [(name,) for name in ACTIVATIONS],
    "lstm": [
        *[("sigmoid", name, "tanh") for name in ACTIVATIONS],
        *[("sigmoid", "tanh", name) for name in ACTIVATIONS],
        *[(name, "tanh", "tanh") for name in ("hardsigmoid", "own_hardsigmoid", "softsign")],
        ("hardsigmoid", "leaky_relu", "elu"),
        ("own_hardsigmoid", "own_scaled_tanh", "softsign"),
    ],
    "peephole": [("hardsigmoid", "softsign", "elu"), ("sigmoid", "leaky_relu", "own_scaled_tanh")],
    "gru": [
        *[("sigmoid", name) for name in ACTIVATIONS],
        *[(name, "tanh") for name in ("hardsigmoid", "own_hardsigmoid", "softsign")],
        ("own_hardsigmoid", "leaky_relu"),
    ],
}
PLACES["gru_before"] = PLACES["gru"]
ACTIVATED = [  # one direction and both, by turns
    (f"{variant}-{direction}-{'_'.join(names)}", activated_node(variant, direction, names))
    for variant, places in PLACES.items()
    for names, direction in zip(places, cycle(("forward", "bidirectional")))
]


def accepted(nodes: Iterable[tuple[str, Node]]) -> list[Any]:
    """Every node on every engine that computes it."""
    return [pytest.param(node, engine, id=f"{name}-{engine}") for name, node in nodes for engine in engines(node)]


def refused(nodes: Iterable[tuple[str, Node]]) -> list[Any]:
    """Every node on every engine that does not compute it."""
    return [
        pytest.param(node, engine, id=f"{name}-{engine}")
        for name, node in nodes
        for engine in sorted(set(ENGINES) - set(engines(node)), key=list(ENGINES).index)
    ]


def assert_agree(node: Node, engine: str, rows: slice | Tensor = slice(None)) -> None:
    """All of Y, and the given rows of the final states."""
    expected, actual = theirs(node), ours(node, engine)
    assert_close(actual["Y"], expected["Y"], "Y")
    for name in OUTPUTS[node.op][1:]:
        assert_close(actual[name][:, rows], expected[name][:, rows], name)


@pytest.mark.parametrize(("node", "engine"), accepted(SIZES))
def test_sizes(node: Node, engine: str) -> None:
    assert_agree(node, engine)


@pytest.mark.parametrize(("node", "engine"), accepted(LENGTHS))
def test_ragged_lengths(node: Node, engine: str) -> None:
    assert_agree(node, engine)


@pytest.mark.parametrize(("node", "engine"), accepted(EMPTY))
def test_empty_sequences(node: Node, engine: str) -> None:
    assert node.lengths is not None
    empty = node.lengths == 0
    assert_agree(node, engine, ~empty)
    expected, actual = theirs(node), ours(node, engine)
    for name, initial in zip(OUTPUTS[node.op][1:], node.states, strict=True):
        assert torch.equal(actual[name][:, empty], initial[:, empty])
        assert not np.any(expected[name][:, empty])  # onnxruntime forgets the initial state


@pytest.mark.parametrize(("node", "engine"), accepted(WITHOUT_BIAS))
def test_without_bias_and_initial_state(node: Node, engine: str) -> None:
    assert_agree(node, engine)


@pytest.mark.parametrize(("node", "engine"), accepted(ACTIVATED))
def test_activations(node: Node, engine: str) -> None:
    assert_agree(node, engine)


@pytest.mark.parametrize(("node", "engine"), refused(WITHOUT_BIAS + ACTIVATED))
def test_an_engine_that_cannot_raises(node: Node, engine: str) -> None:
    with pytest.raises(UserError, match=f"The engine {engine!r} cannot do this"):
        ours(node, engine)


def test_torch_computes_what_torch_nn_has() -> None:
    """So that the cases above are more than the reference's."""
    plain = dict(WITHOUT_BIAS)
    for name in ("rnn-forward", "lstm-reverse", "lstm-bidirectional", "gru-reverse"):
        assert engines(plain[name]) == ON_CPU
    assert "torch" not in engines(plain["gru_before-forward"])
    assert "torch" not in engines(plain["peephole-reverse"])
