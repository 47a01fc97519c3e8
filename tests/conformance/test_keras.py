"""Keras 3 on its torch backend, against our layers with the same weights: outputs, states and gradients.

Masks: Keras carries the states over masked steps as we carry them over padding, backwards too. Its output there
repeats the last one, but is zero, as ours, with `zero_output_for_mask=True`, which `Bidirectional` sets by itself. So
a mask that is True for the first steps of each row means the same as our `lengths`, an empty row included, and is
compared.

Keras' `ops.matmul` computes in float32 whatever the dtype is, so float64 is compared only where Keras runs a loop of
its own over torch's product: in the LSTM and the GRU with reset_after=True, unmasked.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from tests.conformance import engines_for
from tests.tolerances import assert_close
from unrolled import nn

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # inside Keras

Layer = nn.RNN | nn.LSTM | nn.GRU

# Where Keras has our gates, in our order: both LSTMs are i, f, g, o; r, z, n in z, r, h.
GATES = {"SimpleRNN": (0,), "LSTM": (0, 1, 2, 3), "GRU": (1, 0, 2)}
OURS = {"SimpleRNN": "rnn", "LSTM": "lstm", "GRU": "gru"}
DTYPES = {"float32": torch.float32, "float64": torch.float64}
FEATURES = 3


@dataclass(frozen=True)
class Case:
    """A Keras layer: its class, its options, and ours that mean the same."""

    kind: str
    keras_options: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


KERAS_CASES = {
    "rnn": Case("SimpleRNN"),
    "rnn_relu": Case("SimpleRNN", {"activation": "relu"}, {"nonlinearity": "relu"}),
    "rnn_no_bias": Case("SimpleRNN", {"use_bias": False}, {"bias": False}),
    "lstm": Case("LSTM"),
    "lstm_no_bias": Case("LSTM", {"use_bias": False}, {"bias": False}),
    "lstm_activations": Case(
        "LSTM",
        {"activation": "softsign", "recurrent_activation": "hard_sigmoid"},
        {"activation": "softsign", "gate_activation": "hardsigmoid"},
    ),
    "gru": Case("GRU", {"reset_after": True}, {"reset_after": True}),
    "gru_no_bias": Case("GRU", {"reset_after": True, "use_bias": False}, {"bias": False}),
    "gru_before": Case("GRU", {"reset_after": False}, {"reset_after": False}),
    "gru_before_activations": Case(
        "GRU",
        {"reset_after": False, "activation": "elu", "recurrent_activation": "hard_sigmoid"},
        {"reset_after": False, "activation": "elu", "gate_activation": "hardsigmoid"},
    ),
}


def keras_layers() -> Any:
    """Keras' layers, imported when a test needs them: it takes seconds."""
    with mock.patch.dict(os.environ, {"KERAS_BACKEND": "torch"}):  # read once, at the first import
        from keras import layers

    return layers


def keras_layer(case: Case, hidden: int, dtype: str) -> Any:
    """Built, with random weights: kernels, recurrent kernels and biases alike."""
    made = getattr(keras_layers(), case.kind)(
        hidden, dtype=dtype, return_sequences=True, return_state=True, **case.keras_options
    )
    made.build((None, None, FEATURES))
    randomize(made)
    return made


def randomize(made: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    made.set_weights(
        [
            (torch.randn(w.shape, generator=generator, dtype=torch.float64) / w.shape[0] ** 0.5).numpy()
            for w in made.get_weights()
        ]
    )


def mapped(case: Case, weights: Sequence[Tensor], suffix: str = "l0") -> dict[str, Tensor]:
    """A Keras layer's weights, or their gradients, under our names: kernels transposed, rows in our order.

    Where Keras has a single bias, as everywhere but in the GRU with reset_after=True, it is our bias_ih.
    """

    def rows(weight: Tensor) -> Tensor:
        blocks = weight.chunk(len(GATES[case.kind]))
        return torch.cat([blocks[index] for index in GATES[case.kind]])

    kernel, recurrent, *biases = weights
    found = {"weight_ih": rows(kernel.T), "weight_hh": rows(recurrent.T)}
    if biases:
        both = biases[0] if biases[0].dim() == 2 else biases
        found |= dict(zip(("bias_ih", "bias_hh"), map(rows, both), strict=False))
    return {f"{name}_{suffix}": weight for name, weight in found.items()}


def variables(made: Any) -> list[Tensor]:
    return [variable.value for variable in made.trainable_variables]


def our_layer(case: Case, hidden: int, dtype: str, weights: dict[str, Tensor], **more: Any) -> Layer:
    """Our layer with these weights; a bias that is not among them is zero."""
    layer = nn.layer(OURS[case.kind], FEATURES, hidden, batch_first=True, dtype=DTYPES[dtype], **case.options, **more)
    assert isinstance(layer, Layer)
    zeros = {name: torch.zeros_like(p) for name, p in layer.named_parameters() if name.startswith("bias_hh")}
    layer.load_state_dict(zeros | weights)
    return layer


def random(*shape: int, dtype: str) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=DTYPES[dtype]).requires_grad_()


def dtypes(case: Case) -> list[str]:
    """The dtypes in which Keras computes the case without a mask."""
    return list(DTYPES) if case.kind == "LSTM" or case.keras_options.get("reset_after") else ["float32"]


def engines(case: Case, dtype: str) -> list[str]:
    def accepts(engine: str) -> object:
        layer = nn.layer(OURS[case.kind], FEATURES, 2, dtype=DTYPES[dtype], backend=engine, **case.options)
        assert isinstance(layer, Layer)
        return layer.backend_for(torch.zeros(1, 1, FEATURES, dtype=DTYPES[dtype]))

    return engines_for(accepts)


ON_ENGINES = [
    pytest.param(case, dtype, engine, id=f"{name}-{dtype}-{engine}")
    for name, case in KERAS_CASES.items()
    for dtype in dtypes(case)
    for engine in engines(case, dtype)
]
MASKED = [
    pytest.param(case, engine, id=f"{name}-{engine}")
    for name, case in KERAS_CASES.items()
    for engine in engines(case, "float32")
]


def states_for(case: Case, runs: int, batch: int, hidden: int, dtype: str) -> list[Tensor]:
    """Initial states, (directions, B, H) each."""
    return [random(runs, batch, hidden + k, dtype=dtype)[..., :hidden] for k in range(2 if case.kind == "LSTM" else 1)]


def hx(case: Case, states: list[Tensor]) -> Any:
    return tuple(states) if case.kind == "LSTM" else states[0]


def flat(final: Any) -> list[Tensor]:
    return list(final) if isinstance(final, tuple) else [final]


def halves(made: Any) -> dict[str, Any]:
    """A Keras layer's directions by our suffixes."""
    if isinstance(made, keras_layers().Bidirectional):
        return {"l0": made.forward_layer, "l0_reverse": made.backward_layer}
    return {"l0": made}


def loss(values: list[Tensor]) -> Tensor:
    """A weighted sum of all values."""
    weighed = [v * random(*v.shape, dtype=str(v.dtype).removeprefix("torch.")).detach() for v in values]
    return torch.stack([v.sum() for v in weighed]).sum()


def assert_same(
    case: Case, layer: Layer, made: Any, actual: list[Tensor], expected: list[Tensor], inputs: list[Tensor]
) -> None:
    """The same values, and the same gradients of a weighted sum of them: by the inputs and by all weights."""
    for index, (mine, theirs) in enumerate(zip(actual, expected, strict=True)):
        assert_close(mine, theirs, f"value {index} of output, states")
    my_loss, their_loss = loss(actual), loss(expected)
    gradients = [torch.autograd.grad(each, inputs, retain_graph=True) for each in (my_loss, their_loss)]
    for index, (mine, theirs) in enumerate(zip(*gradients, strict=True)):
        assert_close(mine, theirs, f"gradient of input {index} of x, states")
    for suffix, half in halves(made).items():
        of_weights = torch.autograd.grad(their_loss, variables(half), retain_graph=True)
        for name, theirs in mapped(case, of_weights, suffix).items():
            (mine,) = torch.autograd.grad(my_loss, layer.get_parameter(name), retain_graph=True)
            assert_close(mine, theirs, f"gradient of {name}")


@pytest.mark.parametrize(
    ("case", "dtype", "engine", "steps"),
    [pytest.param(*on.values, steps, id=f"{on.id}-{steps}") for on, steps in zip(ON_ENGINES, cycle((63, 1, 2, 63, 2)))],
)
def test_sequences_states_and_gradients(case: Case, dtype: str, engine: str, steps: int) -> None:
    batch, hidden = 3, 5
    made = keras_layer(case, hidden, dtype)
    layer = our_layer(case, hidden, dtype, mapped(case, variables(made)), backend=engine)
    x, states = random(batch, steps, FEATURES, dtype=dtype), states_for(case, 1, batch, hidden, dtype)
    output, final = layer(x, hx(case, states))
    expected = made(x, initial_state=[s[0] for s in states])
    assert_same(case, layer, made, [output, *(s[0] for s in flat(final))], list(expected), [x, *states])


@pytest.mark.parametrize(("case", "dtype", "engine"), ON_ENGINES)
def test_without_initial_state(case: Case, dtype: str, engine: str) -> None:
    made = keras_layer(case, 1, dtype)
    layer = our_layer(case, 1, dtype, mapped(case, variables(made)), backend=engine)
    x = random(1, 7, FEATURES, dtype=dtype)
    output, final = layer(x)
    assert_same(case, layer, made, [output, *(s[0] for s in flat(final))], list(made(x)), [x])


def bidirectional(case: Case, hidden: int, dtype: str, engine: str) -> tuple[Any, Layer]:
    """Keras' wrapper around two layers, and our layer with their weights."""
    made = keras_layers().Bidirectional(keras_layer(case, hidden, dtype), merge_mode="concat", dtype=dtype)
    made.build((None, None, FEATURES))
    randomize(made)
    weights: dict[str, Tensor] = {}
    for suffix, half in halves(made).items():
        weights |= mapped(case, variables(half), suffix)
    return made, our_layer(case, hidden, dtype, weights, bidirectional=True, backend=engine)


@pytest.mark.parametrize(("case", "dtype", "engine"), ON_ENGINES)
def test_bidirectional(case: Case, dtype: str, engine: str) -> None:
    batch, hidden = 2, 4
    made, layer = bidirectional(case, hidden, dtype, engine)
    x, states = random(batch, 7, FEATURES, dtype=dtype), states_for(case, 2, batch, hidden, dtype)
    output, final = layer(x, hx(case, states))
    expected = made(x, initial_state=[s[direction] for direction in range(2) for s in states])
    last = [s[direction] for direction in range(2) for s in flat(final)]
    assert_same(case, layer, made, [output, *last], list(expected), [x, *states])


@pytest.mark.parametrize(("case", "engine"), MASKED)
def test_mask_is_lengths(case: Case, engine: str) -> None:
    dtype, batch, steps, hidden = "float32", 4, 6, 4
    made, layer = bidirectional(case, hidden, dtype, engine)
    lengths = torch.tensor([4, 6, 0, 1])
    mask = torch.arange(steps) < lengths[:, None]
    x, states = random(batch, steps, FEATURES, dtype=dtype), states_for(case, 2, batch, hidden, dtype)
    output, final = layer(x, hx(case, states), lengths=lengths)
    expected = made(x, initial_state=[s[direction] for direction in range(2) for s in states], mask=mask)
    last = [s[direction] for direction in range(2) for s in flat(final)]
    assert_same(case, layer, made, [output, *last], list(expected), [x, *states])
