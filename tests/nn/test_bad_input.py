"""Every mistake a user can make with a layer: what it says, and that it is said before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

import unrolled
from tests.engines import ON_CPU
from unrolled import GRU, LSTM, RNN, Cell, Recurrent, UserError
from unrolled.kernels import scan
from unrolled.nn import initialize, layer

X = torch.zeros(7, 2, 3)  # (T, B, D)


class Adder(Cell):
    def step(self, gates_x: torch.Tensor, state: tuple[torch.Tensor, ...]) -> tuple[Any, ...]:
        h = state[0] + gates_x
        return h, (h,)


def broken(result: Callable[[torch.Tensor], Any], gates: tuple[str, ...] = ()) -> type[Cell]:
    """A cell whose step returns what it should not."""

    class Broken(Cell):
        gate_names = gates

        def step(self, gates_x: torch.Tensor, state: tuple[torch.Tensor, ...]) -> Any:
            return result(state[0])

    return Broken


def _gradients_after_backward() -> None:
    trace = LSTM(3, 4).trace(X)
    loss: Any = trace.output.sum()
    loss.backward()
    trace.state_gradients(loss)


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "rank": (
        lambda: LSTM(3, 4)(torch.zeros(1, 7, 2, 3)),
        "LSTM: Expected input to be 2D or 3D, got 4D instead: shape (1, 7, 2, 3). 3D is (batch, time, features), time "
        "first unless batch_first=True; 2D is (time, features).",
    ),
    "not a tensor": (lambda: LSTM(3, 4)([[0.0]]), "The input must be a tensor, got list."),
    "features": (
        lambda: GRU(3, 4)(torch.zeros(7, 2, 5)),
        "input.size(-1) must be equal to input_size. Expected 3, got 5: the input has shape (7, 2, 5). The last "
        "dimension holds the features.",
    ),
    "dtype": (
        lambda: RNN(3, 4)(X.double()),
        "RNN input dtype (torch.float64) does not match weight dtype (torch.float32). Convert input: "
        "input.to(torch.float32), or convert model: model.to(torch.float64).",
    ),
    "whole numbers": (
        lambda: RNN(3, 4)(X.long()),
        "RNN input dtype (torch.int64) does not match weight dtype (torch.float32). Convert input: "
        "input.to(torch.float32).",
    ),
    "device": (
        lambda: LSTM(3, 4)(X.to("meta")),
        "Input and parameter tensors are not at the same device, found input tensor at meta and parameter tensor at "
        "cpu. Use x.to('cpu').",
    ),
    "no steps": (
        lambda: LSTM(3, 4)(torch.zeros(0, 2, 3)),
        "Expected sequence length to be larger than 0 in RNN: the input has no time steps. Use lengths=0 for empty "
        "sequences.",
    ),
    "length above T": (
        lambda: LSTM(3, 4)(X, lengths=[7, 9]),
        "lengths[1]=9 is longer than the input's 7 steps. Expected 0 to 7.",
    ),
    "negative length": (lambda: GRU(3, 4)(X, lengths=[-1, 7]), "lengths[0]=-1 is negative. Expected 0 to 7."),
    "number of lengths": (
        lambda: GRU(3, 4)(X, lengths=[1, 2, 3]),
        "lengths have shape (3,). Expected (2,): one for each sequence.",
    ),
    "lengths in floats": (
        lambda: GRU(3, 4)(X, lengths=torch.tensor([1.0, 2.0])),
        "lengths are torch.float32. Expected whole numbers (torch.int64).",
    ),
    "lengths of one sequence": (
        lambda: GRU(3, 4)(X[:, 0], lengths=[3]),
        "lengths were given with an input of one sequence. Cut the sequence instead.",
    ),
    "lengths and packing": (
        lambda: GRU(3, 4)(pack_sequence([X[:, 0]]), lengths=[3]),
        "Both a PackedSequence and lengths were given. A PackedSequence has its own.",
    ),
    "resets' dtype": (
        lambda: LSTM(3, 4)(X, resets=torch.zeros(7, 2)),
        "resets are torch.float32. Expected a torch.bool tensor, True where a new sequence begins.",
    ),
    "resets' shape": (
        lambda: LSTM(3, 4)(X, resets=torch.zeros(2, 7, dtype=torch.bool)),
        "resets have shape (2, 7). Expected (7, 2), (time, batch) as the input, or (2,) for the first step.",
    ),
    "state's shape": (
        lambda: GRU(3, 4, 2)(X, torch.zeros(1, 2, 4)),
        "Expected hidden size (2, 2, 4), got [1, 2, 4]: the initial state h_0 does not fit. Its shape is "
        "(layers · directions, batch, size).",
    ),
    "memory's shape": (
        lambda: LSTM(3, 4, proj_size=2)(X, (torch.zeros(1, 2, 2), torch.zeros(1, 2, 2))),
        "Expected hidden[1] size (1, 2, 4), got [1, 2, 2]: the initial state c_0 does not fit. Its shape is "
        "(layers · directions, batch, size).",
    ),
    "one state for an LSTM": (
        lambda: LSTM(3, 4)(X, torch.zeros(1, 2, 4)),
        "The initial state of LSTM is a Tensor. Expected a tuple (h_0, c_0).",
    ),
    "two states for a GRU": (
        lambda: GRU(3, 4)(X, (torch.zeros(1, 2, 4), torch.zeros(1, 2, 4))),
        "The initial state of GRU is a tuple of 2. Expected one tensor h_0.",
    ),
    "state's dtype": (
        lambda: GRU(3, 4)(X, torch.zeros(1, 2, 4).double()),
        "The initial state h_0 is torch.float64, the input torch.float32. Use h_0.to(torch.float32).",
    ),
    "state's device": (
        lambda: GRU(3, 4)(X, torch.zeros(1, 2, 4, device="meta")),
        "Input and hidden tensors are not at the same device, found input tensor at cpu and hidden tensor at meta. "
        "Use h_0.to('cpu').",
    ),
    "state's rank": (
        lambda: GRU(3, 4)(X, torch.zeros(1, 4)),
        "For batched 3-D input, hx should also be 3-D but got 2-D tensor. Expected (layers · directions, batch, size).",
    ),
    "states' ranks": (
        lambda: LSTM(3, 4)(X[:, 0], (torch.zeros(1, 4), torch.zeros(1, 1, 4))),
        "For unbatched 2-D input, hx and cx should also be 2-D but got (2-D, 3-D) tensors. "
        "Expected (layers · directions, size).",
    ),
    "a state that is none": (
        lambda: LSTM(3, 4)(X, ([[0.0]], torch.zeros(1, 2, 4))),
        "The initial state h_0 must be a tensor, got list.",
    ),
    "unknown cell": (lambda: layer("lstn", 3, 4), "Unknown cell 'lstn'. Did you mean 'lstm'? Choices: gru, lstm, rnn."),
    "not a cell": (
        lambda: layer(torch.nn.Linear, 3, 4),  # type: ignore[arg-type]
        "A cell must be a name or a class derived from unrolled.Cell, got <class 'torch.nn.modules.linear.Linear'>. "
        "Names: gru, lstm, rnn.",
    ),
    "not a cell in a stack": (
        lambda: Recurrent(torch.nn.Linear, 3, 4),  # type: ignore[arg-type]
        "cell(input_size, hidden_size) gave a Linear. Expected a class derived from unrolled.Cell.",
    ),
    "unknown option": (
        lambda: LSTM(3, 4, peepholes=True),
        "Unknown LSTM option 'peepholes'. Did you mean 'peephole'? Choices: activation, backend, combine, dropconnect, "
        "gate_activation, init, layer_norm, learned_state, output_activation, peephole, variational_dropout, zoneout.",
    ),
    "unknown option of a stack": (
        lambda: Recurrent(Adder, 3, 3, bidirektional=True),
        "Unknown Recurrent option 'bidirektional'. Did you mean 'bidirectional'? Choices: backend, bidirectional, "
        "cell, combine, dropout, hidden_size, input_size, learned_state, num_layers, variational_dropout, zoneout.",
    ),
    "unknown peephole": (
        lambda: LSTM(3, 4, peephole="previuos"),
        "Unknown peephole 'previuos'. Did you mean 'previous'? Choices: False, True, current, previous.",
    ),
    "unknown activation": (
        lambda: RNN(3, 4, nonlinearity="tahn"),
        "Unknown nonlinearity 'tahn'. Did you mean 'tanh'? Choices: elu, gelu, hardsigmoid, hardtanh, identity, "
        "leaky_relu, relu, sigmoid, silu, softplus, softsign, tanh.",
    ),
    "not an activation": (
        lambda: GRU(3, 4, activation=3),
        "An activation must be a name or a function of one tensor, got int. Names: elu, gelu, hardsigmoid, hardtanh, "
        "identity, leaky_relu, relu, sigmoid, silu, softplus, softsign, tanh.",
    ),
    "unknown combination": (
        lambda: LSTM(3, 4, combine="max"),
        "Unknown combination 'max'. Did you mean 'mix'? Choices: concat, last, mean, mix.",
    ),
    "unknown initialisation": (
        lambda: LSTM(3, 4, init="ortogonal"),
        "Unknown initialisation 'ortogonal'. Did you mean 'orthogonal'? Choices: forget_bias, identity, orthogonal, "
        "torch.",
    ),
    "identity for an LSTM": (
        lambda: initialize(LSTM(3, 4), "identity"),
        "init='identity' is for RNN(nonlinearity='relu'), got LSTM. Use 'orthogonal' or, for an LSTM, 'forget_bias'.",
    ),
    "forget bias of a GRU": (
        lambda: GRU(3, 4, init="forget_bias"),
        "init='forget_bias' is for LSTM, got GRU. It has no forget gate.",
    ),
    "forget bias without a bias": (
        lambda: LSTM(3, 4, bias=False, init="forget_bias"),
        "init='forget_bias' needs a bias. Use bias=True.",
    ),
    "unknown engine": (
        lambda: LSTM(3, 4, backend="refrence"),
        "Unknown engine 'refrence'. Did you mean 'reference'? "
        f"Choices: {', '.join(sorted(['auto', *unrolled.kernels.ENGINES]))}.",
    ),
    "an engine that cannot": (
        lambda: LSTM(3, 4, peephole=True, backend="torch")(X),
        "The engine 'torch' cannot do this: torch.nn has no peepholes. Use backend='auto', which picks one that can, "
        "or backend='reference', which runs everything.",
    ),
    "an engine that cannot trace": (
        lambda: LSTM(3, 4, backend="torch").trace(X),
        "The engine 'torch' cannot do this: it does not show its gates. Use backend='auto', which picks one that can, "
        "or backend='reference', which runs everything.",
    ),
    "hidden size": (lambda: LSTM(3, 0), "hidden_size must be greater than zero, got 0."),
    "no layers": (lambda: GRU(3, 4, 0), "num_layers must be greater than zero, got 0."),
    "bias": (
        lambda: GRU(3, 4, bias=1),  # type: ignore[arg-type]
        "bias should be of type bool, got: int (1). Use bias=True or bias=False.",
    ),
    "dropout": (
        lambda: LSTM(3, 4, 2, dropout=1.5),
        "dropout should be a number in range [0, 1] representing the probability of an element being zeroed, got 1.5.",
    ),
    "projection of a GRU": (
        lambda: GRU(3, 4, proj_size=2),
        "proj_size argument is only supported for LSTM, not RNN or GRU. Use LSTM, or leave it out.",
    ),
    "negative projection": (
        lambda: LSTM(3, 4, proj_size=-1),
        "proj_size should be a positive integer or zero to disable projections, got -1.",
    ),
    "input size": (lambda: GRU(2.5, 4), "input_size should be of type int, got: float (2.5)."),  # type: ignore[arg-type]
    "layers of a stack": (
        lambda: Recurrent(Adder, 3, 3, num_layers=0),
        "num_layers must be greater than zero, got 0.",
    ),
    "projection": (
        lambda: LSTM(3, 4, proj_size=4),
        "proj_size has to be smaller than hidden_size: got proj_size=4 and hidden_size=4. A projection makes h "
        "smaller; 0 is none.",
    ),
    "zoneout": (
        lambda: GRU(3, 4, zoneout=1.5),
        "zoneout=1.5 is not a probability. Expected a number from 0 up to, not including, 1.",
    ),
    "three dropouts": (
        lambda: GRU(3, 4, variational_dropout=(0.1, 0.2, 0.3)),
        "variational_dropout=(0.1, 0.2, 0.3) has 3 numbers. Expected one number, or a pair.",
    ),
    "stack's rank": (
        lambda: Recurrent(Adder, 3, 3)(X[0]),
        "The input has shape (2, 3). Expected (batch, time, features).",
    ),
    "stack's state": (
        lambda: Recurrent(Adder, 3, 3)(X, torch.zeros(7, 1, 3)),
        "The initial state is a Tensor. Expected a tuple (h).",
    ),
    "stack's state's shape": (
        lambda: Recurrent(Adder, 3, 3)(X, (torch.zeros(7, 3),)),
        "The initial state h has shape (7, 3). Expected (7, 1, 3): (batch, layers · directions, size).",
    ),
    "a cell already made": (
        lambda: Recurrent(Adder(3, 3), 3, 3),
        "cell is a Adder that is made already. Give its class: Recurrent(Adder, …).",
    ),
    "a step without a state": (
        lambda: Recurrent(broken(lambda h: h), 3, 3)(X),
        "Broken.step returned a Tensor. Expected `output, state` or `output, state, gates`, where state and gates are "
        "tuples: return h, (h,).",
    ),
    "a step without its gates": (
        lambda: Recurrent(broken(lambda h: (h, (h,)), gates=("a",)), 3, 3)(X),
        "Broken.step returned 0 gates, but gate_names are ('a',). Return as many gates as are named.",
    ),
    "a step with two states": (
        lambda: Recurrent(broken(lambda h: (h, (h, h))), 3, 3)(X),
        "Broken.step returned 2 states, but state_names are ('h',). Return as many states as are named.",
    ),
    "a step that shrinks the state": (
        lambda: Recurrent(broken(lambda h: (h[:, :2], (h[:, :2],))), 3, 3)(X),
        "Broken.step made the state h of shape (7, 2). Expected (7, 3), as it was before the step.",
    ),
    "gradients of a vector": (
        lambda: (trace := LSTM(3, 4).trace(X)).state_gradients(trace.output),
        "The loss has shape (7, 2, 4). Expected one number: use its sum or mean.",
    ),
    "gradients of something else": (
        lambda: LSTM(3, 4).trace(X).state_gradients(torch.ones(1, requires_grad=True).sum()),
        "The loss does not depend on this trace. Make it from trace.output.",
    ),
    "gradients after backward": (
        lambda: _gradients_after_backward(),
        "The loss's graph is gone: backward() was called on it. Ask for gradients before loss.backward(), or use "
        "loss.backward(retain_graph=True).",
    ),
    "scan's rank": (
        lambda: scan(Adder(3, 3), X[0]),
        "x must be (batch, time, features), got shape (2, 3).",
    ),
    "scan's state": (
        lambda: scan(Adder(3, 3), X, (torch.zeros(2, 3),)),
        "The state h has shape (2, 3). Expected (7, 3): (batch, size).",
    ),
    "gradients of a run without": (
        lambda: _trace_without_gradients(),
        "This trace cannot give gradients: it was made, or its loss computed, without gradients. Call layer.trace(x) "
        "outside torch.no_grad() and make the loss from trace.output.",
    ),
}


def _trace_without_gradients() -> None:
    with torch.no_grad():
        trace = LSTM(3, 4).trace(X)
    trace.weight_gradients(trace.output.sum())


@pytest.mark.parametrize("mistake", MISTAKES)
def test_message(mistake: str) -> None:
    make, message = MISTAKES[mistake]
    with pytest.raises(UserError) as error:
        make()
    assert str(error.value) == message


TORCHS: dict[str, Callable[[Any], object]] = {
    "rank": lambda layers: layers.LSTM(3, 4)(torch.zeros(1, 7, 2, 3)),
    "features": lambda layers: layers.GRU(3, 4)(torch.zeros(7, 2, 5)),
    "dtype": lambda layers: layers.RNN(3, 4)(X.double()),
    "device": lambda layers: layers.LSTM(3, 4)(X.to("meta")),
    "no steps": lambda layers: layers.LSTM(3, 4)(torch.zeros(0, 2, 3)),
    "state's shape": lambda layers: layers.RNN(3, 4, 2)(X, torch.zeros(1, 2, 4)),
    "h's shape": lambda layers: layers.LSTM(3, 4)(X, (torch.zeros(1, 2, 3), torch.zeros(1, 2, 4))),
    "c's shape": lambda layers: layers.LSTM(3, 4)(X, (torch.zeros(1, 2, 4), torch.zeros(1, 2, 3))),
    "state's rank": lambda layers: layers.GRU(3, 4)(X, torch.zeros(1, 4)),
    "state's rank, unbatched": lambda layers: layers.RNN(3, 4)(X[:, 0], torch.zeros(1, 1, 4)),
    "states' ranks": lambda layers: layers.LSTM(3, 4)(X, (torch.zeros(1, 4), torch.zeros(1, 2, 4))),
    "states' ranks, unbatched": lambda layers: layers.LSTM(3, 4)(X[:, 0], (torch.zeros(1, 4), torch.zeros(1, 2, 4))),
    "hidden size": lambda layers: layers.LSTM(3, 0),
    "input size": lambda layers: layers.RNN(0, 3),
    "layers": lambda layers: layers.GRU(3, 4, 0),
    "size in floats": lambda layers: layers.GRU(2.5, 4),
    "bias": lambda layers: layers.GRU(3, 4, bias=1),
    "batch_first": lambda layers: layers.RNN(3, 4, batch_first="True"),
    "dropout": lambda layers: layers.LSTM(3, 4, 2, dropout=2),
    "projection": lambda layers: layers.LSTM(3, 4, proj_size=4),
    "negative projection": lambda layers: layers.LSTM(3, 4, proj_size=-1),
    "projection of a GRU": lambda layers: layers.GRU(3, 4, proj_size=2),
    "projection of an RNN": lambda layers: layers.RNN(3, 4, proj_size=2),
}


@pytest.mark.parametrize("mistake", TORCHS)
def test_mistakes_raise_the_exception_of_torch(mistake: str) -> None:
    """torch.nn's exception, with its sentence in ours, in whichever version is installed."""
    with pytest.raises(Exception, match=r".") as theirs:
        TORCHS[mistake](torch.nn)
    with pytest.raises(UserError) as ours:
        TORCHS[mistake](unrolled)
    assert isinstance(ours.value, theirs.type)
    assert str(theirs.value).rstrip(".") in str(ours.value)


def test_an_unknown_option_is_a_type_error() -> None:
    for layers in (torch.nn, unrolled):
        with pytest.raises(TypeError):
            layers.LSTM(3, 4, peepholes=True)


def test_a_cell_without_a_step_says_what_to_write() -> None:
    with pytest.raises(TypeError, match=r"Cell has no step\. Write `def step\(self, gates_x, state\)`"):
        Cell(3, 4)(torch.zeros(2, 3), (torch.zeros(2, 4),))


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_nan_spreads_as_in_torch(name: str) -> None:
    """A NaN at step 3 of row 0 is in every later output of that row, and nowhere else."""
    x = torch.randn(7, 2, 3)
    x[3, 0, 1] = torch.nan
    theirs = getattr(torch.nn, name)(3, 4)
    for backend in ON_CPU:
        ours = getattr(unrolled, name)(3, 4, backend=backend)
        ours.load_state_dict(theirs.state_dict())
        assert torch.equal(ours(x)[0].isnan(), theirs(x)[0].isnan())
