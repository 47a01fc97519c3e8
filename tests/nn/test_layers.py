"""The options that torch.nn lacks, each against its definition written out."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import unrolled
from tests.engines import ON_CPU
from tests.tolerances import assert_close
from unrolled import GRU, LSTM, RNN
from unrolled.kernels.recurrence import torch_engine

KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "rnn": (RNN, {}),
    "rnn-softsign": (RNN, {"nonlinearity": "softsign"}),
    "rnn-norm": (RNN, {"layer_norm": True}),
    "lstm": (LSTM, {}),
    "lstm-projected": (LSTM, {"proj_size": 2}),
    "lstm-peephole": (LSTM, {"peephole": True}),
    "lstm-peephole-previous": (LSTM, {"peephole": "previous"}),
    "lstm-norm": (LSTM, {"layer_norm": True, "peephole": True, "proj_size": 3}),
    "gru": (GRU, {}),
    "gru-before": (GRU, {"reset_after": False}),
    "gru-norm": (GRU, {"layer_norm": True}),
    "gru-before-norm": (GRU, {"reset_after": False, "layer_norm": True}),
}


def make(kind: str, **options: Any) -> Any:
    """A layer in float64 with every parameter random, so that no term of an equation is silent."""
    layer_class, own = KINDS[kind]
    layer = layer_class(3, 4, batch_first=True, dtype=torch.float64, **{**own, **options})
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5)
    return layer


def norm(a: Tensor, gain: Tensor) -> Tensor:
    """Layer norm from its definition (Ba et al. 2016): gain ∘ (a − μ) / √(σ² + ε)."""
    mean = a.mean(-1, keepdim=True)
    return gain * (a - mean) / ((a - mean).pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()


def lstm_by_hand(layer: LSTM, x: Tensor, peephole: str | None, normed: bool) -> Tensor:
    """Outputs (B, T, P) of one layer from the equations alone, gate by gate."""
    p: dict[str, Tensor] = dict(layer.named_parameters())
    rows = {g: slice(4 * k, 4 * k + 4) for k, g in enumerate("ifgo")}
    h: Tensor = x.new_zeros(x.shape[0], layer.proj_size or 4)
    c = x.new_zeros(x.shape[0], 4)
    outputs = []
    for t in range(x.shape[1]):
        a, u = x[:, t] @ p["weight_ih_l0"].T, h @ p["weight_hh_l0"].T
        if normed:
            a, u = norm(a, p["norm_ih_l0"]), norm(u, p["norm_hh_l0"])
        z = a + u + p["bias_ih_l0"] + p["bias_hh_l0"]
        w_i, w_f, w_o = p["weight_peephole_l0"] if peephole else torch.zeros(3, 4, dtype=x.dtype)
        i = 1 / (1 + torch.exp(-(z[:, rows["i"]] + w_i * c)))
        f = 1 / (1 + torch.exp(-(z[:, rows["f"]] + w_f * c)))
        new = f * c + i * torch.tanh(z[:, rows["g"]])
        o = 1 / (1 + torch.exp(-(z[:, rows["o"]] + w_o * (new if peephole == "current" else c))))
        c = new
        h = o * torch.tanh(norm(c, p["norm_c_l0"]) + p["norm_c_bias_l0"] if normed else c)
        h = h @ p["weight_hr_l0"].T if layer.proj_size else h
        outputs.append(h)
    return torch.stack(outputs, 1)


@pytest.mark.parametrize(
    ("kind", "peephole", "normed"),
    [
        ("lstm", None, False),
        ("lstm-projected", None, False),
        ("lstm-peephole", "current", False),
        ("lstm-peephole-previous", "previous", False),
        ("lstm-norm", "current", True),
    ],
)
def test_lstm_equals_its_equations(kind: str, peephole: str | None, normed: bool) -> None:
    layer, x = make(kind), torch.randn(2, 6, 3, dtype=torch.float64)
    assert_close(layer(x)[0], lstm_by_hand(layer, x, peephole, normed))


@pytest.mark.parametrize("kind", ["gru", "gru-before", "gru-norm", "gru-before-norm"])
def test_gru_equals_its_equations(kind: str) -> None:
    layer, x = make(kind), torch.randn(2, 6, 3, dtype=torch.float64)
    p: dict[str, Tensor] = {name.removesuffix("_l0"): value for name, value in layer.named_parameters()}
    r_, z_, n_ = slice(0, 4), slice(4, 8), slice(8, 12)
    h = x.new_zeros(2, 4)
    outputs = []

    def recurrent(value: Tensor, rows: slice) -> Tensor:
        product = value @ p["weight_hh"][rows].T
        return (norm(product, p["norm_hh"][rows]) if "norm_hh" in p else product) + p["bias_hh"][rows]

    for t in range(6):
        a = x[:, t] @ p["weight_ih"].T
        a = (norm(a, p["norm_ih"]) if "norm_ih" in p else a) + p["bias_ih"]
        if layer.reset_after:
            u = recurrent(h, slice(None))
            r, z = torch.sigmoid(a[:, r_] + u[:, r_]), torch.sigmoid(a[:, z_] + u[:, z_])
            n = torch.tanh(a[:, n_] + r * u[:, n_])
        else:
            u = recurrent(h, slice(0, 8))
            r, z = torch.sigmoid(a[:, r_] + u[:, r_]), torch.sigmoid(a[:, z_] + u[:, z_])
            n = torch.tanh(a[:, n_] + recurrent(r * h, n_))
        h = (1 - z) * n + z * h
        outputs.append(h)
    assert_close(layer(x)[0], torch.stack(outputs, 1))


def test_the_sense_of_z_is_a_sign() -> None:
    """The papers' h = (1 − z)∘h + z∘n is our network with the z rows negated, as the docs say."""
    layer, x = make("gru-before"), torch.randn(1, 5, 3, dtype=torch.float64)
    negated = copy.deepcopy(layer)
    with torch.no_grad():
        for parameter in negated.parameters():
            parameter[4:8] *= -1
    gates = layer.trace(x).gates["l0"]["z"]
    assert_close(negated.trace(x).gates["l0"]["z"][:, 0], 1 - gates[:, 0])


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_right_to_second_order(kind: str) -> None:
    """gradcheck and gradgradcheck by finite differences, with lengths and resets, on the reference engine."""
    layer = make(kind, backend="reference", bidirectional=True, learned_state=True)
    x = torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True)
    names = [name for name, _ in layer.named_parameters()]
    resets = torch.tensor([[False, False, False], [False, True, False]])

    def run(x: Tensor, *values: Tensor) -> Any:
        call = torch.func.functional_call(
            layer, dict(zip(names, values, strict=True)), (x,), {"lengths": [2, 3], "resets": resets}
        )
        return call[0]

    inputs = (x, *layer.parameters())
    assert torch.autograd.gradcheck(run, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(run, inputs, fast_mode=True)


@pytest.mark.parametrize("how", ["last", "concat", "mean", "mix"])
def test_combinations_of_layers(how: str) -> None:
    layer = make("gru", num_layers=3, bidirectional=True, combine=how)
    x = torch.randn(2, 5, 3, dtype=torch.float64)
    trace = layer.trace(x)
    h = trace.states
    outputs = [torch.cat([h[f"l{k}"]["h"], h[f"l{k}_reverse"]["h"]], -1) for k in range(3)]
    expected = {
        "last": outputs[-1],
        "concat": torch.cat(outputs, -1),
        "mean": (outputs[0] + outputs[1] + outputs[2]) / 3,
    }
    if how == "mix":
        weights = torch.exp(layer.combine_weight) / torch.exp(layer.combine_weight).sum()
        expected["mix"] = weights[0] * outputs[0] + weights[1] * outputs[1] + weights[2] * outputs[2]
    assert_close(layer(x)[0], expected[how])
    layer(x)[0].sum().backward()
    assert all(p.grad is not None for p in layer.parameters())


class TestVariationalDropout:
    def test_one_mask_for_all_steps(self) -> None:
        """With U = 0 the hidden mask is silent, and an input of ones shows the input mask in every step's output."""
        layer: Any = RNN(50, 50, nonlinearity="identity", bias=False, batch_first=True, variational_dropout=0.5)
        with torch.no_grad():
            layer.weight_ih_l0.copy_(torch.eye(50))
            layer.weight_hh_l0.zero_()
        output, _ = layer(torch.ones(2, 4, 50))
        assert set(output.unique().tolist()) == {0.0, 2.0}
        assert torch.equal(output, output[:, :1].expand_as(output))
        assert not torch.equal(output[0], output[1])

    def test_the_hidden_mask_is_inside_the_recurrence(self) -> None:
        """h_t = m∘h_{t-1} with m ∈ {0, 2}: kept units double at every step."""
        layer: Any = RNN(50, 50, nonlinearity="identity", bias=False, batch_first=True, variational_dropout=(0.0, 0.5))
        with torch.no_grad():
            layer.weight_ih_l0.zero_()
            layer.weight_hh_l0.copy_(torch.eye(50))
        output, _ = layer(torch.zeros(1, 3, 50), torch.ones(1, 1, 50))
        kept = output[0, 0] == 2
        assert torch.equal(output[0, 2][kept], torch.full_like(output[0, 2][kept], 8.0))
        assert output[0, :, ~kept].abs().sum() == 0

    def test_nothing_is_dropped_in_eval(self) -> None:
        layer: Any = LSTM(3, 4, variational_dropout=0.5, dropconnect=0.5).eval()
        x = torch.randn(5, 2, 3)
        assert torch.equal(layer(x)[0], layer(x)[0])
        plain = LSTM(3, 4)
        plain.load_state_dict(layer.state_dict())
        assert_close(layer(x)[0], plain(x)[0])


def test_dropconnect_drops_weights_once_per_call() -> None:
    layer: Any = RNN(3, 64, nonlinearity="identity", bias=False, dropconnect=0.25)
    with torch.no_grad():
        layer.weight_ih_l0.zero_()
        layer.weight_hh_l0.fill_(1 / 64)
    output, _ = layer(torch.zeros(1, 2, 3), torch.ones(1, 2, 64))
    kept = output[0, 0] * 0.75  # the share of each row of U that was kept
    assert 0.6 < kept.mean() < 0.9
    assert torch.equal(output[0, 0], output[0, 1])


class TestZoneout:
    def test_training_keeps_or_takes(self) -> None:
        """Every unit at every step is the old state or the new one, never between."""
        layer: Any = RNN(3, 64, zoneout=0.3, batch_first=True)
        x = torch.randn(2, 6, 3)
        trace = layer.trace(x)
        old, h = trace.scans["l0"].entering["h"], trace.states["l0"]["h"]
        fresh = torch.tanh(x @ layer.weight_ih_l0.T + layer.bias_ih_l0 + old @ layer.weight_hh_l0.T + layer.bias_hh_l0)
        kept = h == old
        assert 0.2 < kept.float().mean() < 0.4
        assert_close(torch.where(kept, fresh, h), fresh)

    def test_eval_takes_the_mean(self) -> None:
        layer: Any = LSTM(3, 4, zoneout=(0.25, 0.5), batch_first=True).eval()
        x = torch.randn(2, 1, 3)
        h0, c0 = torch.randn(1, 2, 4), torch.randn(1, 2, 4)
        plain = LSTM(3, 4, batch_first=True)
        plain.load_state_dict(layer.state_dict())
        _, (h, c) = plain(x, (h0, c0))
        _, (h_zoned, c_zoned) = layer(x, (h0, c0))
        assert_close(h_zoned, 0.25 * h0 + 0.75 * h)
        assert_close(c_zoned, 0.5 * c0 + 0.5 * c)


class TestLearnedState:
    def test_it_is_where_sequences_begin(self) -> None:
        layer = make("lstm", learned_state=True, num_layers=2, bidirectional=True)
        x = torch.randn(2, 5, 3, dtype=torch.float64)
        given = tuple(p.unsqueeze(1).expand(-1, 2, -1).contiguous() for p in (layer.initial_h, layer.initial_c))
        assert_close(layer(x)[0], layer(x, given)[0])

    def test_resets_return_to_it(self) -> None:
        layer = make("gru", learned_state=True)
        x = torch.randn(1, 6, 3, dtype=torch.float64)
        resets = torch.tensor([[False, False, False, True, False, False]])
        expected = torch.cat([layer(x[:, :3])[0], layer(x[:, 3:])[0]], 1)
        output, _ = layer(x, resets=resets)
        assert_close(output, expected)
        output.sum().backward()
        assert layer.initial_h.grad.abs().sum() > 0

    def test_a_row_of_resets_is_the_first_step(self) -> None:
        layer = make("gru")
        x, h0 = torch.randn(2, 4, 3, dtype=torch.float64), torch.randn(1, 2, 4, dtype=torch.float64)
        output, _ = layer(x, h0, resets=torch.tensor([True, False]))
        assert_close(output[:1], layer(x[:1])[0])
        assert_close(output[1:], layer(x[1:], h0[:, 1:])[0])


class TestInit:
    def test_orthogonal(self) -> None:
        layer: Any = GRU(3, 5, num_layers=2, init="orthogonal")
        for gate in layer.weight_hh_l1.split(5):
            assert_close(gate @ gate.T, torch.eye(5))
        assert layer.bias_ih_l0.abs().sum() == 0

    def test_forget_bias(self) -> None:
        layer: Any = LSTM(3, 5, init=["orthogonal", "forget_bias"])
        total = (layer.bias_ih_l0 + layer.bias_hh_l0).tolist()
        assert total == [0.0] * 5 + [1.0] * 5 + [0.0] * 10

    def test_identity(self) -> None:
        """An IRNN starts by adding up its inputs."""
        layer: Any = RNN(3, 5, nonlinearity="relu", init="identity")
        assert torch.equal(layer.weight_hh_l0, torch.eye(5))
        assert layer.weight_ih_l0.std() < 0.002

    def test_reset_parameters_keeps_to_the_choice(self) -> None:
        layer: Any = LSTM(3, 5, init="forget_bias", layer_norm=True)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.zero_()
        layer.reset_parameters()
        assert (layer.bias_ih_l0[5:10] == 1).all()
        assert (layer.norm_hh_l0 == 1).all()


class TestWithTorch:
    """The layers with other parts of torch."""

    @pytest.mark.parametrize("kind", KINDS)
    def test_copies_and_state_dicts(self, kind: str) -> None:
        layer, x = make(kind, num_layers=2, combine="mix"), torch.randn(2, 5, 3, dtype=torch.float64)
        expected, _ = layer(x)
        assert torch.equal(copy.deepcopy(layer)(x)[0], expected)
        other = make(kind, num_layers=2, combine="mix")
        other.load_state_dict(layer.state_dict())
        assert torch.equal(other(x)[0], expected)
        file = io.BytesIO()
        torch.save(layer, file)
        file.seek(0)
        assert torch.equal(torch.load(file, weights_only=False)(x)[0], expected)

    @pytest.mark.parametrize("engine", ON_CPU)
    def test_parametrizations(self, engine: str) -> None:
        layer: Any = LSTM(3, 4, backend=engine)
        x = torch.randn(5, 2, 3)
        expected, _ = layer(x)
        torch.nn.utils.parametrizations.weight_norm(layer, "weight_hh_l0")
        output, _ = layer(x)
        assert_close(output, expected)
        output.sum().backward()
        assert layer.parametrizations.weight_hh_l0.original0.grad.abs().sum() > 0

    @pytest.mark.parametrize("engine", ON_CPU)
    def test_functional_call(self, engine: str) -> None:
        layer, x = GRU(3, 4, backend=engine), torch.randn(5, 2, 3)
        other = GRU(3, 4, backend=engine)
        output, _ = torch.func.functional_call(layer, dict(other.named_parameters()), (x,))
        assert_close(output, other(x)[0])

    @pytest.mark.parametrize("kind", ["rnn", "lstm", "lstm-peephole", "gru", "gru-before"])
    def test_autocast(self, kind: str) -> None:
        """Products in bfloat16: the result is near the exact one, and gradients reach the float32 weights."""
        layer, x = make(kind, backend="reference").float(), torch.randn(2, 5, 3)
        exact, _ = layer(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output, state = layer(x)
        assert output.dtype == torch.bfloat16
        assert all(s.dtype == torch.bfloat16 for s in (state if isinstance(state, tuple) else (state,)))
        assert not torch.equal(output.float(), exact)
        assert (output.float() - exact).abs().max() < 0.1
        output.float().sum().backward()
        assert layer.weight_hh_l0.grad.dtype == torch.float32

    @pytest.mark.parametrize("engine", ON_CPU)
    @pytest.mark.parametrize("kind", ["rnn", "lstm", "gru"])
    def test_autocast_on_every_engine(self, kind: str, engine: str) -> None:
        layer, x = make(kind, backend=engine).float(), torch.randn(2, 5, 3)
        exact, _ = layer(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output, _ = layer(x)
        assert (output.float() - exact).abs().max() < 0.1

    @pytest.mark.parametrize(
        ("kind", "engine"), [*(("lstm", engine) for engine in ON_CPU), ("rnn", ON_CPU[0]), ("gru", ON_CPU[-1])]
    )
    def test_compile(self, kind: str, engine: str) -> None:
        layer, x = make(kind, backend=engine).float(), torch.randn(2, 4, 3)
        expected = layer(x, lengths=[4, 2])[0]
        torch._dynamo.reset()
        compiled: Any = torch.compile(layer, backend="aot_eager")
        output, _ = compiled(x, lengths=torch.tensor([4, 2]))
        assert_close(output, expected)
        gradients = torch.autograd.grad(output.sum(), list(layer.parameters()))
        for actual, wanted in zip(
            gradients, torch.autograd.grad(expected.sum(), list(layer.parameters())), strict=True
        ):
            assert_close(actual, wanted)

    def test_compile_in_one_graph(self) -> None:
        """Dynamo admits torch's recurrent classes, and so ours, only with its own switch."""
        layer, x = LSTM(3, 4, peephole=True, backend="reference"), torch.randn(4, 2, 3)
        torch._dynamo.reset()
        with torch._dynamo.config.patch(allow_rnn=True):
            compiled: Any = torch.compile(layer, backend="aot_eager", fullgraph=True)
            assert_close(compiled(x)[0], layer(x)[0])


@pytest.mark.parametrize(
    ("options", "call", "engine"),
    [
        ({}, {}, "torch"),
        ({}, {"lengths": [5, 3]}, "torch"),
        ({"peephole": True}, {}, "reference"),
        ({"layer_norm": True}, {}, "reference"),
        ({"zoneout": 0.1}, {}, "reference"),
        ({"variational_dropout": 0.1}, {}, "reference"),
        ({"activation": "relu"}, {}, "reference"),
        ({}, {"resets": torch.tensor([True, False])}, "reference"),
    ],
)
def test_auto_says_which_engine_and_why(options: dict[str, Any], call: dict[str, Any], engine: str) -> None:
    choice = LSTM(3, 4, dtype=torch.float64, **options).backend_for(torch.zeros(5, 2, 3, dtype=torch.float64), **call)
    assert choice.engine == engine
    assert str(choice) == f"{engine}: {choice.reason}"
    assert len(choice.reason) > 10


def test_dropout_between_layers_is_between() -> None:
    """The last layer's output is not dropped."""
    layer: Any = GRU(3, 64, num_layers=2, dropout=0.5, backend="reference")
    output, _ = layer(torch.randn(4, 2, 3))
    assert (output == 0).sum() == 0
    assert F.dropout(output, 0.5).eq(0).sum() > 0


def test_options_show_in_repr() -> None:
    layer: Any = LSTM(3, 4, 2, bidirectional=True, peephole="previous", zoneout=0.1)
    assert repr(layer) == "LSTM(3, 4, num_layers=2, bidirectional=True, peephole='previous', zoneout=0.1)"
    assert repr(RNN(3, 4, nonlinearity="relu")) == "RNN(3, 4, nonlinearity='relu')"


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru"])
def test_layers_by_name(name: str) -> None:
    assert type(unrolled.nn.layer(name, 3, 4)) is unrolled.nn.CELLS[name]


@pytest.mark.parametrize("lengths", [None, [4, 2]])
def test_autocast_on_a_cpu_without_the_instructions(lengths: list[int] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN is left out there, for as long as the layer runs."""
    monkeypatch.setattr(torch_engine, "_in_hardware", lambda dtype: False)
    layer, x, before = LSTM(3, 4, backend="torch"), torch.randn(4, 2, 3), torch._C._get_mkldnn_enabled()
    exact, _ = layer(x, lengths=lengths)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, _ = layer(x, lengths=lengths)
    assert (output.float() - exact).abs().max() < 0.1
    assert torch._C._get_mkldnn_enabled() == before
