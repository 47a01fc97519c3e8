"""Options of recurrent layers as config keys: against torch.nn, against equations, and step by step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.tolerances import assert_close
from unrolled.errors import UserError
from unrolled.jobs.engine_notes import engine_notes
from unrolled.models import LanguageModelSettings
from unrolled.models.language import LanguageStepper, RecurrentLM
from unrolled.models.recurrent_settings import RecurrentSettings, recurrent_layer
from unrolled.nn.dropin import DropIn

LENGTHS = [6, 1, 4]
CELLS: dict[str, Any] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


def a_layer(bidirectional: bool = False, **keys: Any) -> DropIn:
    settings = RecurrentSettings(hidden_size=5, num_layers=2, dropout=0.0, **keys)
    layer = recurrent_layer(settings, 3, bidirectional=bidirectional)
    for name, parameter in layer.named_parameters():
        if name.startswith("initial_"):  # zeros in a new layer
            nn.init.normal_(parameter)
    assert settings.output_size * (2 if bidirectional else 1) == layer(torch.zeros(1, 1, 3))[0].shape[-1]
    return layer


def torch_results(layer: DropIn, theirs: nn.RNNBase, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
    """torch.nn's own layer with the same weights, on packed rows."""
    theirs.load_state_dict({name: value for name, value in layer.state_dict().items() if "initial" not in name})
    packed = pack_padded_sequence(x, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False)
    output, final = theirs(packed, state)
    return pad_packed_sequence(output, batch_first=True)[0], final


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(
    ("cell", "keys"),
    [("lstm", {"proj_size": 2}), ("lstm", {"bias": False}), ("gru", {"bias": False}), ("rnn", {"bias": False})],
)
def test_a_projection_and_no_bias_are_torchs(cell: str, keys: dict[str, Any], bidirectional: bool) -> None:
    layer, x = a_layer(bidirectional, cell=cell, **keys), torch.randn(3, 6, 3)
    theirs = CELLS[cell](3, 5, num_layers=2, batch_first=True, bidirectional=bidirectional, **keys)
    expected, expected_state = torch_results(layer, theirs, x)
    output, state = layer(x, lengths=LENGTHS)
    assert_close(output, expected)
    for one, other in zip(state, expected_state, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_a_learned_state_is_a_given_one_of_torch(cell: str, bidirectional: bool) -> None:
    """Output, final state and the gradient of the learned state, for rows of different lengths, in both directions."""
    layer, x = a_layer(bidirectional, cell=cell, learned_state=True), torch.randn(3, 6, 3)
    learned = [p.detach().clone().requires_grad_() for n, p in layer.named_parameters() if n.startswith("initial_")]
    given = tuple(p[:, None].expand(-1, 3, -1).contiguous() for p in learned)
    theirs = CELLS[cell](3, 5, num_layers=2, batch_first=True, bidirectional=bidirectional)
    expected, _ = torch_results(layer, theirs, x, given if len(given) > 1 else given[0])
    output, _ = layer(x, lengths=LENGTHS)
    assert_close(output, expected)
    weights = torch.randn_like(output)
    torch.autograd.backward([(output * weights).sum(), (expected * weights).sum()])
    for name, theirs_learned in zip(layer.cell_class.state_names, learned, strict=True):
        assert theirs_learned.grad is not None
        mine = layer.get_parameter(f"initial_{name}").grad
        assert mine is not None
        assert_close(mine, theirs_learned.grad)


@pytest.mark.parametrize("backend", ["reference", "native"])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_a_reset_returns_to_the_learned_state(cell: str, bidirectional: bool, backend: str) -> None:
    """A row of two documents equals the two alone, whatever state was carried into it."""
    layer, x = a_layer(bidirectional, cell=cell, learned_state=True), torch.randn(1, 6, 3)
    layer.backend = backend
    resets = torch.tensor([[True, False, False, False, True, False]])
    state = tuple(torch.randn(2, 1, 5) for _ in layer.cell_class.state_names)
    carried: Any = None if bidirectional else state if len(state) > 1 else state[0]  # backwards it would enter the end
    together, _ = layer(x, carried, resets=resets)
    alone = [layer(x[:, :4])[0], layer(x[:, 4:])[0]]
    assert_close(together, torch.cat(alone, dim=1))


def written_lstm(layer: DropIn, x: Tensor) -> Tensor:
    """The LSTM's equations with softsign candidates, hard sigmoid gates and a ReLU on the cell state."""
    for depth in range(layer.num_layers):
        w, u, b, v = (getattr(layer, f"{name}_l{depth}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        h, c, outputs = x.new_zeros(len(x), 5), x.new_zeros(len(x), 5), []
        for t in range(x.shape[1]):
            i, f, g, o = (x[:, t] @ w.T + b + h @ u.T + v).chunk(4, dim=-1)
            i, f, o = ((gate / 6 + 0.5).clamp(0, 1) for gate in (i, f, o))
            c = f * c + i * (g / (1 + g.abs()))
            h = o * c.clamp(min=0)
            outputs.append(h)
        x = torch.stack(outputs, dim=1)
    return x


def test_activations_of_an_lstm_are_those_of_its_equations() -> None:
    layer = a_layer(cell_activation="softsign", gate_activation="hardsigmoid", output_activation="relu").double()
    x = torch.randn(2, 7, 3, dtype=torch.float64)
    assert_close(layer(x)[0], written_lstm(layer, x))
    tanh = a_layer(output_activation="tanh")
    assert tanh.backend_for(torch.zeros(2, 7, 3)).engine != "reference"


def test_an_unknown_activation_is_named_with_the_choices() -> None:
    from unrolled.config import read_config

    with pytest.raises(UserError, match=r"gate_activation='sigmod': Unknown activation 'sigmod'\. Did you mean 'sigm"):
        read_config(RecurrentSettings, None, ["gate_activation=sigmod"])
    with pytest.raises(UserError, match=r"proj_size has to be smaller than hidden_size: got proj_size=5"):
        a_layer(proj_size=5)


@pytest.mark.parametrize(
    "keys",
    [
        {"learned_state": True},
        {"learned_state": True, "last_size": 4, "num_layers": 2},
        {"proj_size": 3},
        {"proj_size": 3, "last_size": 6, "num_layers": 3, "learned_state": True},
        {"cell_activation": "relu", "cell": "gru", "learned_state": True},
        {"bias": False, "combine": "concat", "num_layers": 2, "proj_size": 2},
    ],
)
@torch.no_grad()
def test_a_language_model_steps_as_it_reads(keys: dict[str, Any]) -> None:
    settings = LanguageModelSettings(hidden_size=8, embedding_size=4, dropout=0.0, **keys)
    network = RecurrentLM(settings, 11, 0).eval()
    for name, parameter in network.named_parameters():
        if "initial_" in name:
            nn.init.normal_(parameter)
    ids, stepper, state = torch.randint(1, 11, (2, 5)), LanguageStepper(network), None
    scores, carried = network(ids)
    again, _ = network(ids, carried, resets=torch.tensor([True, False]))  # the first row begins a new document
    assert_close(again[0], scores[0])
    assert not torch.allclose(again[1], scores[1])
    for time in range(5):
        step = stepper.step(ids[:, time], state)
        state = step.state
        assert_close(step.log_probs, scores[:, time].log_softmax(-1))


def test_a_note_says_that_no_fast_engine_has_an_option() -> None:
    usual = recurrent_layer(RecurrentSettings(hidden_size=5, proj_size=2, learned_state=True, bias=False), 3)
    assert engine_notes(usual) == []
    (note,) = engine_notes(recurrent_layer(RecurrentSettings(cell_activation="relu"), 3))
    assert "step by step in Python" in note
    assert "it has the usual activations only: tanh and sigmoid" in note
