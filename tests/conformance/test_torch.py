"""torch.nn is the reference: outputs, final states and all gradients, over the grid that drop-ins must cover."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import unrolled
from tests.engines import ON_CPU
from tests.kernels.pairs import pairwise
from tests.tolerances import assert_close

BATCH, INPUT, HIDDEN = 4, 3, 5
LENGTHS = {1: [1, 1, 1, 1], 2: [1, 2, 1, 2], 63: [1, 63, 20, 63], 100: [7, 1, 100, 64]}

LAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    "rnn": ("RNN", {}),
    "rnn-relu": ("RNN", {"nonlinearity": "relu"}),
    "lstm": ("LSTM", {}),
    "lstm-projected": ("LSTM", {"proj_size": 2}),
    "gru": ("GRU", {}),
}

ENGINES_AND_DTYPES = [
    (engine, dtype)
    for engine in ON_CPU
    for dtype in (torch.float32, torch.float64)
    if not (engine == "native" and dtype == torch.float64)
]


def pair(kind: str, engine: str, dtype: torch.dtype, **options: Any) -> tuple[nn.RNNBase, nn.RNNBase]:
    """torch's layer and ours with the same weights."""
    name, own = LAYERS[kind]
    options = {"batch_first": True, "dtype": dtype, **own, **options}
    theirs = getattr(nn, name)(INPUT, HIDDEN, **options)
    ours = getattr(unrolled, name)(INPUT, HIDDEN, **options, backend=engine)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def initial_states(layer: nn.RNNBase, dtype: torch.dtype) -> Any:
    """Random, non-zero and with gradients."""
    runs = layer.num_layers * (2 if layer.bidirectional else 1)
    h = torch.randn(runs, BATCH, layer.proj_size or HIDDEN, dtype=dtype, requires_grad=True)
    c = torch.randn(runs, BATCH, HIDDEN, dtype=dtype, requires_grad=True)
    return (h, c) if isinstance(layer, nn.LSTM) else h


def tensors(value: Any) -> list[Tensor]:
    return list(value) if isinstance(value, tuple) else [value]


def results(run: tuple[Tensor, Any], leaves: list[Tensor], retain_graph: bool = False) -> list[Tensor]:
    """Output, states, and the gradients of a loss in which every one of their numbers has its own weight."""
    output, state = run
    numbers = [output, *tensors(state)]
    generator = torch.Generator().manual_seed(1)
    loss = torch.stack(
        [(n * torch.randn(n.shape, generator=generator, dtype=torch.float64).to(n.dtype)).sum() for n in numbers]
    ).sum()
    return [*numbers, *torch.autograd.grad(loss, leaves, retain_graph=retain_graph)]


CHOICES: dict[str, tuple[Any, ...]] = {
    "engine and dtype": tuple(ENGINES_AND_DTYPES),
    "kind": tuple(LAYERS),
    "bidirectional": (False, True),
    "steps": tuple(LENGTHS),
    "num_layers": (1, 3),  # two: test_lengths_equal_torch_on_packed
}


def cases(*names: str) -> pytest.MarkDecorator:
    """A decorator that runs a test on cases in which every two values of two choices meet, several times over."""
    choices = {name: CHOICES[name] for name in names}
    drawn = {tuple(case.values()): case for seed in range(3) for case in pairwise(choices, seed)}
    arguments = [(*case.pop("engine and dtype"), *case.values()) for case in drawn.values()]
    return pytest.mark.parametrize(("engine", "dtype", *names[1:]), arguments, ids=str)


@cases("engine and dtype", "kind", "num_layers", "bidirectional", "steps")
def test_equals_torch(
    engine: str, dtype: torch.dtype, kind: str, num_layers: int, bidirectional: bool, steps: int
) -> None:
    theirs, ours = pair(kind, engine, dtype, num_layers=num_layers, bidirectional=bidirectional)
    x = torch.randn(BATCH, steps, INPUT, dtype=dtype, requires_grad=True)
    given = initial_states(theirs, dtype)
    expected = results(theirs(x, given), [x, *tensors(given), *theirs.parameters()])
    actual = results(ours(x, given), [x, *tensors(given), *ours.parameters()])
    for a, e in zip(actual, expected, strict=True):
        assert_close(a, e)


@cases("engine and dtype", "kind", "bidirectional", "steps")
def test_lengths_equal_torch_on_packed(
    engine: str, dtype: torch.dtype, kind: str, bidirectional: bool, steps: int
) -> None:
    theirs, ours = pair(kind, engine, dtype, num_layers=2, bidirectional=bidirectional)
    x = torch.randn(BATCH, steps, INPUT, dtype=dtype, requires_grad=True)
    lengths, given = torch.tensor(LENGTHS[steps]), initial_states(theirs, dtype)
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    output, state = theirs(packed, given)
    padded, _ = pad_packed_sequence(output, batch_first=True, total_length=steps)
    expected = results((padded, state), [x, *tensors(given), *theirs.parameters()])
    actual = results(ours(x, given, lengths=lengths), [x, *tensors(given), *ours.parameters()])
    for a, e in zip(actual, expected, strict=True):
        assert_close(a, e)


@pytest.mark.parametrize("enforce_sorted", [False, True], ids=["unsorted", "sorted"])
@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("engine", ON_CPU)
def test_packed_in_packed_out(engine: str, kind: str, enforce_sorted: bool) -> None:
    theirs, ours = pair(kind, engine, torch.float32, num_layers=2, bidirectional=True)
    lengths = torch.tensor([9, 7, 7, 2] if enforce_sorted else [7, 2, 9, 7])
    x = torch.randn(BATCH, 9, INPUT, requires_grad=True)
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=enforce_sorted)
    given = initial_states(theirs, torch.float32)
    expected, expected_state = theirs(packed, given)
    actual, actual_state = ours(packed, given)
    assert isinstance(actual, PackedSequence)
    assert torch.equal(actual.batch_sizes, expected.batch_sizes)
    if not enforce_sorted:
        assert actual.sorted_indices is not None
        assert torch.equal(actual.sorted_indices, expected.sorted_indices)
        assert actual.unsorted_indices is not None
        assert torch.equal(actual.unsorted_indices, expected.unsorted_indices)
    leaves = [x, *tensors(given)]
    compared = results((actual.data, actual_state), [*leaves, *ours.parameters()], retain_graph=True)
    for a, e in zip(compared, results((expected.data, expected_state), [*leaves, *theirs.parameters()]), strict=True):
        assert_close(a, e)


@pytest.mark.parametrize("layout", ["time-first", "batch-first", "unbatched"])
@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("engine", ON_CPU)
def test_layouts(engine: str, kind: str, layout: str) -> None:
    theirs, ours = pair(
        kind, engine, torch.float32, num_layers=2, bidirectional=True, batch_first=layout == "batch-first"
    )
    x = torch.randn(*{"time-first": (6, BATCH), "batch-first": (BATCH, 6), "unbatched": (6,)}[layout], INPUT)
    given = initial_states(theirs, torch.float32)
    if layout == "unbatched":
        given = tuple(s[:, 0] for s in given) if isinstance(given, tuple) else given[:, 0]
    for hx in (None, given):
        (output, state), (expected, expected_state) = ours(x, hx), theirs(x, hx)
        assert_close(output, expected)
        for a, e in zip(tensors(state), tensors(expected_state), strict=True):
            assert_close(a, e)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("engine", ON_CPU)
def test_dropout_is_torchs_for_one_seed(engine: str, kind: str) -> None:
    """The masks between layers are drawn as torch draws them: training, too, is the same run."""
    theirs, ours = pair(kind, engine, torch.float32, num_layers=3, bidirectional=True, dropout=0.4)
    x = torch.randn(BATCH, 6, INPUT)
    torch.manual_seed(3)
    expected, _ = theirs(x)
    torch.manual_seed(3)
    actual, _ = ours(x)
    assert_close(actual, expected)


@pytest.mark.parametrize("kind", LAYERS)
def test_one_seed_gives_torchs_weights(kind: str) -> None:
    name, options = LAYERS[kind]
    torch.manual_seed(5)
    theirs = getattr(nn, name)(INPUT, HIDDEN, num_layers=2, bidirectional=True, **options)
    torch.manual_seed(5)
    ours = getattr(unrolled, name)(INPUT, HIDDEN, num_layers=2, bidirectional=True, **options)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for key, value in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[key], value)


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_it_is_torchs_class(name: str) -> None:
    """isinstance, positional arguments, state_dict both ways, attributes: what other code relies on."""
    arguments: tuple[Any, ...] = (3, 4, 2, True, True, 0.1, True)
    if name == "RNN":
        arguments = (3, 4, 2, "relu", True, True, 0.1, True)
    ours, theirs = getattr(unrolled, name)(*arguments), getattr(nn, name)(*arguments)
    assert isinstance(ours, getattr(nn, name))
    theirs.load_state_dict(ours.state_dict())
    ours.load_state_dict(theirs.state_dict())
    for attribute in theirs.__constants__:
        assert getattr(ours, attribute) == getattr(theirs, attribute)
    x = torch.randn(2, 5, 3)
    assert torch.equal(ours.eval()(x)[0], theirs.eval()(x)[0]) or ours.backend_for(x).engine != "torch"


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_device_and_dtype(name: str) -> None:
    layer = getattr(unrolled, name)(3, 4, device="meta", dtype=torch.float64)
    assert layer.weight_hh_l0.device.type == "meta"
    assert layer.weight_hh_l0.dtype == torch.float64
    assert layer.to_empty(device="cpu").float().weight_hh_l0.dtype == torch.float32
