"""Properties of any recurrence on every engine: outputs, final states and the gradients of all inputs.

Each property says that two ways to compute the same numbers from the same tensors agree. Engines that do not compute
a layer refuse it with a UserError and are left out where the cases are collected; `reference` runs all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.conformance import engines_for
from tests.tolerances import assert_close
from unrolled import nn
from unrolled.cells import AnyCell, Cell, GRUCell, LSTMCell, RNNCell, State
from unrolled.kernels import choose, make_job, scan

Layer = nn.RNN | nn.LSTM | nn.GRU | nn.Recurrent
FEATURES = 3


class Tiered(Cell):
    """A cell unlike the built-in ones: states of different widths, and an output that is neither.

    h_t = a∘h_{t-1} + (1 - a)∘tanh(W x_t), a = σ(U m_{t-1});  m_t = tanh(V [h_t, m_{t-1}]);  y_t = sin(R [h_t, m_t])
    """

    state_names = ("h", "m")
    gate_names = ("a",)

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        h, m = self.state_sizes
        self.w, self.u = torch.nn.Linear(input_size, h), torch.nn.Linear(m, h)
        self.v, self.r = torch.nn.Linear(h + m, m), torch.nn.Linear(h + m, self.output_size)

    @property
    def state_sizes(self) -> tuple[int, ...]:
        return (self.hidden_size, self.hidden_size + 1)

    @property
    def output_size(self) -> int:
        return self.hidden_size + 2

    def project(self, x: Tensor) -> Tensor:
        return torch.tanh(self.w(x))

    def step(self, gates_x: Tensor, state: State) -> tuple[Any, ...]:
        h, m = state
        a = torch.sigmoid(self.u(m))
        h = a * h + (1 - a) * gates_x
        m = torch.tanh(self.v(torch.cat([h, m], dim=-1)))
        return torch.sin(self.r(torch.cat([h, m], dim=-1))), (h, m), (a,)


# A layer for a hidden size. With combine="concat" the torch engine runs by way of `scan`, one direction at a time;
# without it torch.nn runs the whole stack.
KINDS: dict[str, Callable[..., Layer]] = {
    "rnn": lambda hidden, **k: nn.RNN(FEATURES, hidden, batch_first=True, **k),
    "lstm": lambda hidden, **k: nn.LSTM(FEATURES, hidden, batch_first=True, **k),
    "lstm_concat": lambda hidden, **k: nn.LSTM(FEATURES, hidden, batch_first=True, combine="concat", **k),
    "lstm_peephole": lambda hidden, **k: nn.LSTM(FEATURES, hidden, batch_first=True, peephole="current", **k),
    "lstm_previous": lambda hidden, **k: nn.LSTM(FEATURES, hidden, batch_first=True, peephole="previous", **k),
    "lstm_layer_norm": lambda hidden, **k: nn.LSTM(FEATURES, hidden, batch_first=True, layer_norm=True, **k),
    "lstm_projected": lambda hidden, **k: nn.LSTM(FEATURES, hidden + 1, batch_first=True, proj_size=hidden, **k),
    "gru": lambda hidden, **k: nn.GRU(FEATURES, hidden, batch_first=True, **k),
    "gru_concat": lambda hidden, **k: nn.GRU(FEATURES, hidden, batch_first=True, combine="concat", **k),
    "gru_before": lambda hidden, **k: nn.GRU(FEATURES, hidden, batch_first=True, reset_after=False, **k),
    "gru_learned_state": lambda hidden, **k: nn.GRU(FEATURES, hidden, batch_first=True, learned_state=True, **k),
    "own_cell": lambda hidden, **k: nn.Recurrent(Tiered, FEATURES, hidden, **k),
}


def dtypes(kind: str, engine: str) -> list[torch.dtype]:
    """Layer norm's rounding errors in float32 grow past any bound; engines on torch's operators take turns."""
    both, place = [torch.float32, torch.float64], (list(KINDS).index(kind) + (engine == "torch")) % 2
    return both[1:] if kind == "lstm_layer_norm" else [both[place]] if engine in ("reference", "torch") else both


def on_engines(*, resets: bool = False) -> list[Any]:
    """Every kind of layer in every dtype on every engine that computes it, with or without resets."""

    def accepts(kind: str, dtype: torch.dtype, engine: str) -> object:
        layer = KINDS[kind](2, backend=engine).to(dtype)
        x = torch.zeros(1, 1, FEATURES, dtype=dtype)
        if isinstance(layer, nn.Recurrent):
            return layer.backend_for(x)
        return layer.backend_for(x, resets=torch.zeros(1, 1, dtype=torch.bool) if resets else None)

    return [
        pytest.param(kind, dtype, engine, id=f"{kind}-{str(dtype).removeprefix('torch.')}-{engine}")
        for kind in KINDS
        for dtype in (torch.float32, torch.float64)
        for engine in engines_for(lambda engine, kind=kind, dtype=dtype: accepts(kind, dtype, engine))  # type: ignore[misc]
        if dtype in dtypes(kind, engine)
    ]


@dataclass(frozen=True)
class Problem:
    """Sizes, and a seed for all numbers."""

    seed: int
    batch: int
    steps: int
    hidden: int
    num_layers: int
    bidirectional: bool
    lengths: tuple[int, ...]  # B
    resets: tuple[tuple[bool, ...], ...]  # B, T

    def layer(self, kind: str, dtype: torch.dtype, engine: str, **options: Any) -> Layer:
        """A layer with parameters large enough to matter, and so small that rounding errors do not grow."""
        given = {"num_layers": self.num_layers, "bidirectional": self.bidirectional, **options}
        layer = KINDS[kind](self.hidden, backend=engine, **given).to(dtype)
        with torch.no_grad():
            for index, parameter in enumerate(layer.parameters()):
                parameter.copy_(self.random(*parameter.shape, dtype=dtype, stream=index) / parameter.shape[-1] ** 0.5)
        return layer

    def random(self, *shape: int, dtype: torch.dtype, stream: int) -> Tensor:
        generator = torch.Generator().manual_seed(1000 * self.seed + stream)
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    def leaves(self, layer: Layer, dtype: torch.dtype) -> tuple[Tensor, State]:
        """x (B, T, D) and initial states, (B, runs, size) each."""
        x = self.random(self.batch, self.steps, FEATURES, dtype=dtype, stream=901).requires_grad_()
        state = tuple(
            self.random(self.batch, *fresh.shape[1:], dtype=dtype, stream=902 + index).requires_grad_()
            for index, fresh in enumerate(fresh_state(layer))
        )
        return x, state

    @property
    def length_tensor(self) -> Tensor:
        return torch.tensor(self.lengths)

    @property
    def reset_tensor(self) -> Tensor:
        return torch.tensor(self.resets)


@st.composite
def problems(draw: st.DrawFn, min_steps: int = 1) -> Problem:
    batch, steps = draw(st.integers(1, 4)), draw(st.integers(min_steps, 7))
    row = st.tuples(*[st.booleans()] * steps)
    return Problem(
        seed=draw(st.integers(0, 10**6)),
        batch=batch,
        steps=steps,
        hidden=draw(st.integers(1, 4)),
        num_layers=draw(st.integers(1, 2)),
        bidirectional=draw(st.booleans()),
        lengths=draw(st.tuples(*[st.integers(0, steps)] * batch)),
        resets=draw(st.tuples(*[row] * batch)),
    )


few = settings(deadline=None, max_examples=4, suppress_health_check=[HealthCheck.too_slow])


def fresh_state(layer: Layer) -> State:
    """The state of one row that a layer starts from when none is given, (1, runs, size) each."""
    x = torch.zeros(1, 1, FEATURES, dtype=next(layer.parameters()).dtype)
    final = call(layer, x)[1]
    if not layer.learned_state:
        return tuple(torch.zeros_like(s) for s in final)
    return tuple(layer.get_parameter(f"initial_{name}")[None] for name in ("h", "c")[: len(final)])


def call(
    layer: Layer, x: Tensor, state: State | None = None, *, lengths: Tensor | None = None, resets: Tensor | None = None
) -> tuple[Tensor, State]:
    """The layer on x (B, T, D) with states, given and returned, as (B, runs, size) each: `Recurrent`'s layout."""
    if isinstance(layer, nn.Recurrent):
        return layer(x, state, lengths=lengths, resets=resets)  # type: ignore[no-any-return]
    hx: Any = tuple(s.transpose(0, 1) for s in state) if state is not None else None
    if hx is not None and not isinstance(layer, nn.LSTM):
        (hx,) = hx
    output, final = layer(x, hx, lengths=lengths, resets=resets)
    return output, tuple(s.transpose(0, 1) for s in (final if isinstance(final, tuple) else (final,)))


def assert_same(actual: Sequence[Tensor], expected: Sequence[Tensor], leaves: Sequence[Tensor]) -> None:
    """Equal values, and equal gradients of a weighted sum of all values with respect to every leaf."""
    gradients = []
    for values in (actual, expected):
        losses = [(v * torch.linspace(-1, 1, v.numel(), dtype=v.dtype).reshape(v.shape).cos()).sum() for v in values]
        loss = torch.stack(losses).sum()
        gradients.append(torch.autograd.grad(loss, leaves, materialize_grads=True))
    for index, (mine, theirs) in enumerate(zip(actual, expected, strict=True)):
        assert_close(mine, theirs, f"value {index}")
    for index, (mine, theirs) in enumerate(zip(*gradients, strict=True)):
        assert_close(mine, theirs, f"gradient {index}")


def rows_of(state: State, row: int) -> State:
    return tuple(s[row : row + 1] for s in state)


def stacked(rows: Sequence[tuple[Tensor, State]]) -> list[Tensor]:
    """Rows of outputs (1, T, O) and states (1, runs, size) as batches."""
    outputs, states = zip(*rows, strict=True)
    return [torch.cat(outputs), *(torch.cat(parts) for parts in zip(*states, strict=True))]


@pytest.mark.parametrize(("kind", "dtype", "engine"), on_engines())
@given(problem=problems())
@few
def test_batched_is_single(kind: str, dtype: torch.dtype, engine: str, problem: Problem) -> None:
    layer = problem.layer(kind, dtype, engine)
    x, state = problem.leaves(layer, dtype)
    output, final = call(layer, x, state, lengths=problem.length_tensor)
    single = [
        call(layer, x[b : b + 1], rows_of(state, b), lengths=problem.length_tensor[b : b + 1])
        for b in range(problem.batch)
    ]
    assert_same([output, *final], stacked(single), [x, *state, *layer.parameters()])


@pytest.mark.parametrize(("kind", "dtype", "engine"), on_engines())
@given(problem=problems(), padding=st.sampled_from([float("nan"), float("inf"), 0.0, 5.0]))
@few
def test_padding_changes_nothing(kind: str, dtype: torch.dtype, engine: str, problem: Problem, padding: float) -> None:
    """Nor does what is in it; an empty sequence gives its initial state, zeros, and no gradient."""
    layer = problem.layer(kind, dtype, engine)
    x, state = problem.leaves(layer, dtype)
    real = torch.arange(problem.steps) < problem.length_tensor[:, None]
    x = torch.where(real[..., None], x, padding).detach().requires_grad_()
    output, final = call(layer, x, state, lengths=problem.length_tensor)
    cut = []
    for b, length in enumerate(problem.lengths):
        if length == 0:
            cut.append((output.new_zeros(1, *output.shape[1:]), rows_of(state, b)))
            continue
        row, last = call(layer, x[b : b + 1, :length], rows_of(state, b))
        cut.append((F.pad(row, (0, 0, 0, problem.steps - length)), last))
    assert_same([output, *final], stacked(cut), [x, *state, *layer.parameters()])


@pytest.mark.parametrize(("kind", "dtype", "engine"), on_engines())
@given(problem=problems(), padding=st.sampled_from([float("nan"), 1.0]))
@few
def test_length_zero(kind: str, dtype: torch.dtype, engine: str, problem: Problem, padding: float) -> None:
    layer = problem.layer(kind, dtype, engine)
    x, state = problem.leaves(layer, dtype)
    x = torch.full_like(x, padding).requires_grad_()
    output, final = call(layer, x, state, lengths=torch.zeros(problem.batch, dtype=torch.int64))
    assert torch.equal(output, torch.zeros_like(output))
    for given_state, last in zip(state, final, strict=True):
        assert torch.equal(given_state, last)
    loss = output.sum() + torch.stack([last.sum() for last in final]).sum()
    of_x, *others = torch.autograd.grad(loss, [x, *state, *layer.parameters()], materialize_grads=True)
    assert torch.equal(of_x, torch.zeros_like(x))
    for of_state in others[: len(state)]:
        assert torch.equal(of_state, torch.ones_like(of_state))  # it went through untouched
    for of_parameter in others[len(state) :]:
        assert torch.equal(of_parameter, torch.zeros_like(of_parameter))


@pytest.mark.parametrize(("kind", "dtype", "engine"), on_engines())
@given(problem=problems(), data=st.data())
@few
def test_order_of_lengths_does_not_matter(
    kind: str, dtype: torch.dtype, engine: str, problem: Problem, data: st.DataObject
) -> None:
    order = torch.tensor(data.draw(st.permutations(range(problem.batch))))
    layer = problem.layer(kind, dtype, engine)
    x, state = problem.leaves(layer, dtype)
    output, final = call(layer, x, state, lengths=problem.length_tensor)
    moved, moved_final = call(layer, x[order], tuple(s[order] for s in state), lengths=problem.length_tensor[order])
    expected = [output[order], *(s[order] for s in final)]
    assert_same([moved, *moved_final], expected, [x, *state, *layer.parameters()])


def assert_cut_is_whole(layer: Layer, problem: Problem, dtype: torch.dtype, at: int, resets: Tensor | None) -> None:
    x, state = problem.leaves(layer, dtype)
    lengths = problem.length_tensor
    first, second = (None, None) if resets is None else (resets[:, :at], resets[:, at:])
    whole, final = call(layer, x, state, lengths=lengths, resets=resets)
    head, carried = call(layer, x[:, :at], state, lengths=lengths.clamp(max=at), resets=first)
    tail, last = call(layer, x[:, at:], carried, lengths=(lengths - at).clamp(min=0), resets=second)
    assert_same([torch.cat([head, tail], dim=1), *last], [whole, *final], [x, *state, *layer.parameters()])


@pytest.mark.parametrize(("kind", "dtype", "engine"), on_engines())
@given(problem=problems(min_steps=2), data=st.data())
@few
def test_cutting_and_carrying_the_state_changes_nothing(
    kind: str, dtype: torch.dtype, engine: str, problem: Problem, data: st.DataObject
) -> None:
    at = data.draw(st.integers(1, problem.steps - 1))
    layer = problem.layer(kind, dtype, engine, bidirectional=False)
    assert_cut_is_whole(layer, problem, dtype, at, None)


@pytest.mark.parametrize(("kind", "dtype", "engine"), on_engines(resets=True))
@given(problem=problems(min_steps=2), data=st.data())
@few
def test_cutting_with_resets(kind: str, dtype: torch.dtype, engine: str, problem: Problem, data: st.DataObject) -> None:
    at = data.draw(st.integers(1, problem.steps - 1))
    layer = problem.layer(kind, dtype, engine, bidirectional=False)
    assert_cut_is_whole(layer, problem, dtype, at, problem.reset_tensor)


def in_pieces(layer: Layer, problem: Problem, row: int, x: Tensor, state: State) -> tuple[Tensor, State]:
    """One row of x (1, T, D) through a bidirectional layer, each sequence between resets in a call of its own.

    The given state enters where a direction enters the row: forwards the first sequence, unless that begins with a
    reset, backwards the last. The final state is the one with which it leaves the row.
    """
    length, resets = problem.lengths[row], problem.resets[row]
    if length == 0:
        return x.new_zeros(1, problem.steps, call(layer, x)[0].shape[2]), state
    fresh = fresh_state(layer)
    forward = (torch.arange(state[0].shape[1]) % 2 == 0)[None, :, None]  # (1, runs, 1), every other run
    starts = [0, *(t for t in range(1, length) if resets[t])]
    pieces, states = [], []
    for start, end in zip(starts, [*starts[1:], length], strict=True):
        enters = forward & (start == 0 and not resets[0]) | ~forward & (end == length)
        given_state = tuple(torch.where(enters, s, f) for s, f in zip(state, fresh, strict=True))
        output, final = call(layer, x[:, start:end], given_state)
        pieces.append(output)
        states.append(final)
    last = tuple(torch.where(forward, end, start) for start, end in zip(states[0], states[-1], strict=True))
    return F.pad(torch.cat(pieces, dim=1), (0, 0, 0, problem.steps - length)), last


@pytest.mark.parametrize(("kind", "dtype", "engine"), on_engines(resets=True))
@given(problem=problems())
@few
def test_resets_are_separate_sequences(kind: str, dtype: torch.dtype, engine: str, problem: Problem) -> None:
    layer = problem.layer(kind, dtype, engine, bidirectional=True)
    x, state = problem.leaves(layer, dtype)
    output, final = call(layer, x, state, lengths=problem.length_tensor, resets=problem.reset_tensor)
    separate = [in_pieces(layer, problem, b, x[b : b + 1], rows_of(state, b)) for b in range(problem.batch)]
    assert_same([output, *final], stacked(separate), [x, *state, *layer.parameters()])


@pytest.mark.parametrize(("kind", "dtype", "engine"), on_engines(resets=True))
@given(problem=problems())
@few
def test_one_reset_per_row_is_at_the_first_step(kind: str, dtype: torch.dtype, engine: str, problem: Problem) -> None:
    layer = problem.layer(kind, dtype, engine)
    x, state = problem.leaves(layer, dtype)
    first = problem.reset_tensor[:, 0]
    output, final = call(layer, x, state, lengths=problem.length_tensor, resets=first)
    full = torch.zeros(problem.batch, problem.steps, dtype=torch.bool)
    full[:, 0] = first
    expected, expected_final = call(layer, x, state, lengths=problem.length_tensor, resets=full)
    assert_same([output, *final], [expected, *expected_final], [x, *state, *layer.parameters()])


def backwards(x: Tensor, lengths: Tensor) -> Tensor:
    """Each row of x (B, T, D) backwards within its length; the padding stays."""
    rows = [torch.cat([row[:length].flip(0), row[length:]]) for row, length in zip(x, lengths.tolist(), strict=True)]
    return torch.stack(rows)


@pytest.mark.parametrize(("kind", "dtype", "engine"), on_engines())
@given(problem=problems())
@few
def test_reversed_twice_is_forward(kind: str, dtype: torch.dtype, engine: str, problem: Problem) -> None:
    """With the same weights both ways, the backward half over a reversed input is the forward half reversed."""
    layer = problem.layer(kind, dtype, engine, num_layers=1, bidirectional=True)
    weights = layer.state_dict()
    layer.load_state_dict({name: weights[name.replace("_reverse", "")] for name in weights})
    x, state = problem.leaves(layer, dtype)
    lengths = problem.length_tensor
    output, final = call(layer, x, state, lengths=lengths)
    swapped = tuple(s.flip(1) for s in state)
    mirrored, mirrored_final = call(layer, backwards(x, lengths), swapped, lengths=lengths)
    mirrored = torch.cat(backwards(mirrored, lengths).chunk(2, dim=-1)[::-1], dim=-1)
    assert_same([mirrored, *(s.flip(1) for s in mirrored_final)], [output, *final], [x, *state])


def cells(hidden: int, dtype: torch.dtype, seed: int) -> dict[str, tuple[AnyCell, list[Tensor]]]:
    """Cells with random weights, and those weights."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()

    def weights(gates: int, **more: Tensor) -> dict[str, Tensor]:
        rows = gates * hidden
        weight_ih, weight_hh = random(rows, FEATURES), random(rows, hidden)
        return {
            "weight_ih": weight_ih,
            "weight_hh": weight_hh,
            "bias_ih": random(rows),
            "bias_hh": random(rows),
            **more,
        }

    makers: dict[str, tuple[Callable[..., AnyCell], dict[str, Tensor]]] = {
        "rnn": (RNNCell, weights(1)),
        "lstm": (LSTMCell, weights(4)),
        "lstm_peephole": (LSTMCell, weights(4, weight_peephole=random(3, hidden))),
        "gru": (GRUCell, weights(3)),
        "gru_before": (partial(GRUCell, reset_after=False), weights(3)),
    }
    return {name: (make(**given), [*given.values()]) for name, (make, given) in makers.items()}


def cells_on_engines() -> list[Any]:
    found = []
    for dtype in (torch.float32, torch.float64):
        for name, (cell, _) in cells(2, dtype, 0).items():
            x = torch.zeros(1, 1, FEATURES, dtype=dtype)
            job = make_job(cell, x, None, torch.tensor([1]), None, None, None, reverse=True)
            engines = engines_for(lambda engine, job=job: choose(job, engine))  # type: ignore[misc]
            found += [
                pytest.param(name, dtype, engine, id=f"{name}-{str(dtype).removeprefix('torch.')}-{engine}")
                for engine in engines
            ]
    return found


@pytest.mark.parametrize(("name", "dtype", "engine"), cells_on_engines())
@given(problem=problems())
@few
def test_reverse_scan_of_the_reversed_is_the_forward_scan(
    name: str, dtype: torch.dtype, engine: str, problem: Problem
) -> None:
    cell, weights = cells(problem.hidden, dtype, problem.seed)[name]
    x = problem.random(problem.batch, problem.steps, FEATURES, dtype=dtype, stream=0).requires_grad_()
    state = tuple(
        problem.random(problem.batch, size, dtype=dtype, stream=1 + index).requires_grad_()
        for index, size in enumerate(cell.state_sizes)
    )
    lengths = problem.length_tensor
    expected, expected_final = scan(cell, x, state, lengths=lengths, backend=engine)
    output, final = scan(cell, backwards(x, lengths), state, lengths=lengths, reverse=True, backend=engine)
    assert_same([backwards(output, lengths), *final], [expected, *expected_final], [x, *state, *weights])


def test_torch_computes_what_torch_nn_has() -> None:
    """So that the properties above are more than the reference's."""
    ids = {parameter.id for parameter in on_engines()}
    for kind in ("rnn", "lstm", "lstm_concat", "lstm_projected", "gru", "gru_concat", "gru_learned_state"):
        assert {f"{kind}-float32-torch", f"{kind}-float64-torch"} & ids
