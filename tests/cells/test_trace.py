"""The trace: what it shows is what happened, and its gradients are those of the definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from tests.nn.test_layers import KINDS, make
from tests.nn.test_recurrent import MinimalGatedUnit
from tests.tolerances import assert_close
from unrolled import LSTM, RNN, Recurrent, Trace
from unrolled.kernels import ENGINES, choose

LENGTHS = torch.tensor([4, 6])
RESETS = torch.tensor([[False] * 6, [False, False, True, False, False, False]])


def loss_of(output: Tensor) -> Tensor:
    return (output * torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)).pow(2).sum()


def tracing_engines(layer: Any, x: Tensor) -> list[str]:
    """Engines that show their gates for this layer and input."""
    found = []
    for name in ENGINES:
        layer.backend = name
        try:
            layer.trace(x)
        except ValueError:
            continue
        found.append(name)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_traced_equals_untraced_to_the_bit(kind: str, dtype: torch.dtype) -> None:
    layer, x = make(kind, num_layers=2, bidirectional=True).to(dtype), torch.randn(2, 6, 3, dtype=dtype)
    engines = tracing_engines(layer, x)
    assert "reference" in engines
    for engine in engines:
        layer.backend = engine
        trace = layer.trace(x, lengths=LENGTHS, resets=RESETS)
        output, state = layer(x, lengths=LENGTHS, resets=RESETS)
        assert trace.engine == engine
        assert torch.equal(trace.output, output)
        for traced, plain in zip(trace.state, state, strict=True):
            assert torch.equal(traced, plain)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_gates_make_the_states(dtype: torch.dtype) -> None:
    """c_t = f∘c_{t-1} + i∘g and h_t = o∘tanh(c_t), from the traced numbers alone, in both directions."""
    layer, x = make("lstm", bidirectional=True).to(dtype), torch.randn(2, 6, 3, dtype=dtype)
    for engine in tracing_engines(layer, x):
        layer.backend = engine
        trace = layer.trace(x)
        for name, direction in (("l0", 1), ("l0_reverse", -1)):
            g, s = trace.gates[name], trace.states[name]
            order = range(6)[::direction]
            c = torch.zeros(2, 4, dtype=dtype)
            for t in order:
                c = g["f"][:, t] * c + g["i"][:, t] * g["g"][:, t]
                assert_close(s["c"][:, t], c)
                assert_close(s["h"][:, t], g["o"][:, t] * torch.tanh(c))


def test_past_a_length_gates_are_zero_and_the_state_is_frozen() -> None:
    layer, x = make("gru"), torch.randn(2, 6, 3, dtype=torch.float64)
    trace = layer.trace(x, lengths=LENGTHS)
    assert trace.gates["l0"]["z"][0, 4:].abs().sum() == 0
    assert torch.equal(trace.states["l0"]["h"][0, 4], trace.states["l0"]["h"][0, 3])


def dummy_parameters(
    parameters: dict[str, Tensor], steps: int, run: Callable[[dict[str, Tensor], int], Tensor]
) -> dict[str, Tensor]:
    """Lecture B's definition: a copy W(t) of every weight for every step; ∇_{W(t)} L by autograd."""
    copies = {name: p.detach().expand(steps, *p.shape).clone().requires_grad_() for name, p in parameters.items()}
    outputs = [run({name: c[t] for name, c in copies.items()}, t) for t in range(steps)]
    gradients = torch.autograd.grad(loss_of(torch.stack(outputs, 1)), list(copies.values()), allow_unused=True)
    return {n: torch.zeros_like(c) if g is None else g for (n, c), g in zip(copies.items(), gradients, strict=True)}


@pytest.mark.parametrize("kind", KINDS)
def test_weight_gradients_are_those_of_dummy_parameters(kind: str) -> None:
    layer, x = make(kind), torch.randn(2, 5, 3, dtype=torch.float64)
    state: list[Any] = [None]

    def one_step(weights: dict[str, Tensor], t: int) -> Tensor:
        output, state[0] = functional_call(layer, weights, (x[:, t : t + 1], state[0]))
        return output[:, 0]  # type: ignore[no-any-return]

    expected = dummy_parameters(dict(layer.named_parameters()), 5, one_step)
    trace = layer.trace(x)
    actual = trace.weight_gradients(loss_of(trace.output))
    assert set(actual) == set(expected)
    for name, value in expected.items():
        assert_close(actual[name], value, name)


def check_sums(layer: Any, trace: Trace) -> None:
    """Σ_t ∇_{W(t)} L = ∇_W L for every weight of every cell."""
    loss = loss_of(trace.output)
    contributions = trace.weight_gradients(loss)
    parameters = dict(layer.named_parameters())
    total = torch.autograd.grad(loss, [parameters[name] for name in contributions], allow_unused=True)
    for (name, steps), gradient in zip(contributions.items(), total, strict=True):
        expected = torch.zeros_like(parameters[name]) if gradient is None else gradient
        assert_close(steps.sum(0), expected, name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_contributions_sum_to_autograds_gradient(kind: str, dtype: torch.dtype) -> None:
    """With everything that comes between a step and the loss: stack, directions, lengths, resets, noise."""
    layer = make(
        kind, num_layers=2, bidirectional=True, dropout=0.2, variational_dropout=0.2, zoneout=0.2, dropconnect=0.2
    ).to(dtype)
    x = torch.randn(2, 6, 3, dtype=dtype)
    for engine in tracing_engines(layer, x):
        layer.backend = engine
        check_sums(layer, layer.trace(x, lengths=LENGTHS, resets=RESETS))


def test_contributions_of_a_custom_cell() -> None:
    layer = Recurrent(MinimalGatedUnit, 3, 4, num_layers=2, bidirectional=True, zoneout=0.2).double()
    check_sums(layer, layer.trace(torch.randn(2, 6, 3, dtype=torch.float64), lengths=LENGTHS, resets=RESETS))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_state_gradients_by_cutting(kind: str, dtype: torch.dtype) -> None:
    """∂L/∂h_t is the gradient of the initial state of a run that starts after t, plus h_t's own use as an output."""
    layer, x = make(kind).to(dtype), torch.randn(2, 6, 3, dtype=dtype)
    weights = torch.randn(2, 6, layer.proj_size or 4, dtype=dtype)
    for engine in tracing_engines(layer, x):
        layer.backend = engine
        trace = layer.trace(x)
        actual = trace.state_gradients((trace.output * weights).sum())["l0"]
        for t in (0, 3, 5):
            cut = [s[:, t].detach().unsqueeze(0).requires_grad_() for s in trace.states["l0"].values()]
            loss = (cut[0][0] * weights[:, t]).sum()
            if t < 5:
                output, _ = layer(x[:, t + 1 :], tuple(cut) if len(cut) > 1 else cut[0])
                loss = loss + (output * weights[:, t + 1 :]).sum()
            expected = torch.autograd.grad(loss, cut, allow_unused=True)
            for name, state, gradient in zip(actual, cut, expected, strict=True):
                wanted = torch.zeros_like(state[0]) if gradient is None else gradient[0]
                assert_close(actual[name][:, t], wanted, f"{engine} {name} at {t}")


def test_vanishing_is_visible() -> None:
    """With U = ½ · 1 and a linear unit, ∂L/∂h_t halves at every step back: the lectures' argument in numbers."""
    layer: Any = RNN(1, 1, nonlinearity="identity", bias=False, batch_first=True)
    with torch.no_grad():
        layer.weight_hh_l0.fill_(0.5)
    trace = layer.trace(torch.randn(1, 6, 1))
    gradients = trace.state_gradients(trace.output[:, -1].sum())["l0"]["h"]
    assert_close(gradients[0, :, 0], torch.tensor([2.0**-k for k in range(5, -1, -1)]))


def test_a_trace_does_not_disturb_training() -> None:
    layer, x = LSTM(3, 4), torch.randn(5, 2, 3)
    trace = layer.trace(x)
    loss: Any = trace.output.sum()
    trace.state_gradients(loss)
    trace.weight_gradients(loss)
    assert all(p.grad is None for p in layer.parameters())
    loss.backward()
    assert all(p.grad is not None for p in layer.parameters())


def test_trace_without_gradients_still_shows() -> None:
    with torch.no_grad():
        trace = LSTM(3, 4).trace(torch.randn(5, 2, 3))
    assert trace.gates["l0"]["f"].shape == (2, 5, 4)
    assert repr(trace) == f"Trace(l0: 2 sequences of 5 steps, engine {trace.engine})"


def test_auto_traces_on_an_engine_that_shows_its_gates() -> None:
    layer, x = LSTM(3, 4), torch.randn(5, 2, 3)
    call = layer._open(x, None, None, None)
    job = layer._runs(call)[0][0].job(call.x, None, None)
    assert layer.trace(x).engine == choose(job, traced=True).engine != "torch"
