"""Our layers with other parts of torch: tracing, scripting, export, quantisation, per-sample gradients."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Iterator
from typing import Any

import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils._per_sample_grad import call_for_per_sample_grads
from torch.nn.utils.rnn import PackedSequence, pack_sequence

import unrolled
from tests.engines import ON_CPU
from tests.tolerances import assert_close
from unrolled.errors import Note, UserError
from unrolled.nn import to_torch

needs_native = pytest.mark.skipif("native" not in ON_CPU, reason="the native engine is not built here")
NAMES = ["RNN", "GRU", "LSTM"]
jit: Any = torch.jit  # these have no types
quantize_dynamic: Any = torch.ao.quantization.quantize_dynamic
per_sample: Any = call_for_per_sample_grads
X = torch.linspace(-1, 1, 30).view(5, 2, 3)  # (T, B, D)
LONGER = torch.linspace(-1, 1, 63).view(7, 3, 3)


class Model(nn.Module):
    def __init__(self, rnn: nn.Module) -> None:
        super().__init__()
        self.rnn = rnn
        self.out = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.out(self.rnn(x)[0])
        return output


class Ragged(nn.Module):
    def __init__(self, rnn: nn.Module) -> None:
        super().__init__()
        self.rnn = rnn

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        output: Tensor = self.rnn(x, lengths=lengths)[0]
        return output


def model(name: str, **options: Any) -> Any:
    return Model(getattr(unrolled, name)(3, 4, **options)).eval()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """torch warns of its own: TorchScript and quantisation are on their way out, oneDNN has no projections."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class TestTrace:
    @pytest.mark.parametrize("name", NAMES)
    def test_it_records_torchs_layer(self, name: str) -> None:
        ours = model(name, num_layers=2, bidirectional=False)
        traced: Any = jit.trace(ours, (X,))
        assert {"RNN": "rnn_tanh", "GRU": "gru", "LSTM": "lstm"}[name] in str(traced.inlined_graph)
        for x in (X, LONGER):
            assert_close(traced(x), ours(x))

    @pytest.mark.parametrize("name", NAMES)
    def test_states_and_packed_sequences(self, name: str) -> None:
        layer: Any = getattr(unrolled, name)(3, 4)
        h = torch.ones(1, 2, 4)
        traced: Any = jit.trace(layer, (X, (h, h) if name == "LSTM" else h))
        expected, _ = layer(X, (h, h) if name == "LSTM" else h)
        assert_close(traced(X, (h, h) if name == "LSTM" else h)[0], expected)

        class Packing(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.rnn = layer

            def forward(self, data: Tensor, sizes: Tensor) -> Tensor:
                output: Tensor = self.rnn(PackedSequence(data, sizes))[0].data
                return output

        packed = pack_sequence([X[:, 0], X[:3, 1]])
        recorded: Any = jit.trace(Packing(), (packed.data, packed.batch_sizes))
        assert_close(recorded(packed.data, packed.batch_sizes), layer(packed)[0].data)

    @pytest.mark.parametrize(
        ("name", "options"),
        [("LSTM", {"peephole": True}), ("GRU", {"reset_after": False}), ("RNN", {"layer_norm": True})],
    )
    def test_other_options_are_a_loop_of_that_length(self, name: str, options: dict[str, Any]) -> None:
        ours = model(name, **options)
        traced: Any = jit.trace(ours, (X,))
        assert_close(traced(X * 2), ours(X * 2))

    def test_lengths(self) -> None:
        ours: Any = Ragged(unrolled.LSTM(3, 4))
        traced: Any = jit.trace(ours, (X, torch.tensor([5, 3])))
        for lengths in (torch.tensor([5, 3]), torch.tensor([2, 5])):
            assert_close(traced(X * 2, lengths), ours(X * 2, lengths))

    @needs_native
    def test_an_engine_by_name_that_cannot(self) -> None:
        with pytest.raises(
            UserError, match=r"'native' cannot do this: torch\.jit\.trace records only torch's own operators"
        ):
            jit.trace(model("LSTM", backend="native"), (X,))

    @pytest.mark.parametrize("name", NAMES)
    def test_the_legacy_onnx_export(self, name: str) -> None:
        ours, file = model(name, num_layers=2, bidirectional=False), io.BytesIO()
        axes = {"x": {0: "time", 1: "batch"}}
        export: Any = torch.onnx.export
        export(ours, (X,), file, dynamo=False, input_names=["x"], dynamic_axes=axes)
        session = onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
        for x in (X, LONGER):
            (found,) = session.run(None, {"x": x.numpy()})
            assert_close(torch.from_numpy(found), ours(x).detach())

    @pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in NAMES), ("LSTM", {"peephole": True})])
    def test_a_layer_alone_is_exported(self, name: str, options: dict[str, Any]) -> None:
        """The exporter gives the defaults of all arguments by position."""
        ours, file = getattr(unrolled, name)(3, 4, **options).eval(), io.BytesIO()
        export: Any = torch.onnx.export
        export(ours, (X,), file, dynamo=False, input_names=["x"])
        session = onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
        assert_close(torch.from_numpy(session.run(None, {"x": X.numpy()})[0]), ours(X)[0].detach())


class TestScript:
    @pytest.mark.parametrize("name", NAMES)
    def test_a_scripted_layer_is_torchs(self, name: str) -> None:
        ours = model(name, num_layers=2, bidirectional=False)
        expected = ours(LONGER)
        scripted: Any = jit.script(to_torch(ours))
        assert type(ours.rnn) is getattr(unrolled, name)
        assert_close(scripted(LONGER), expected)
        file = io.BytesIO()
        jit.save(scripted, file)
        file.seek(0)
        assert_close(jit.load(file)(LONGER), expected)

    @pytest.mark.parametrize("name", NAMES)
    def test_without_asking_it_is_said(self, name: str) -> None:
        """torch puts what it scripts into the model itself; the parameters stay the same objects."""
        ours, weight = model(name), None
        expected, weight = ours(X), ours.rnn.weight_hh_l0
        with pytest.warns(Note, match=rf"compiles torch\.nn\.{name}, and leaves it in the model"):
            scripted: Any = jit.script(ours)
        assert_close(scripted(X), expected)
        assert ours.rnn.weight_hh_l0 is weight

    def test_other_options_are_refused(self) -> None:
        with pytest.raises(UserError, match=r"torch\.nn\.LSTM has no peephole, layer_norm.*torch\.jit\.trace"):
            jit.script(model("LSTM", peephole=True, layer_norm=True))


class TestToTorch:
    @pytest.mark.parametrize("name", NAMES)
    def test_every_layer_becomes_torchs(self, name: str) -> None:
        options: dict[str, Any] = {
            "num_layers": 2,
            "bidirectional": True,
            "batch_first": True,
            "bias": False,
            "dropout": 0.1,
        }
        own: Any = {"RNN": {"nonlinearity": "relu"}, "GRU": {}, "LSTM": {"proj_size": 2}}[name]
        layer = getattr(unrolled, name)(3, 4, **options, **own, init="orthogonal")
        shared = nn.ModuleList([layer, nn.ModuleDict({"again": layer}), nn.Linear(2, 2)]).eval()
        made: Any = to_torch(shared)
        assert type(made[0]) is getattr(nn, name)
        assert made[0] is made[1]["again"]
        assert shared[0] is layer
        assert list(made.state_dict()) == list(shared.state_dict())
        assert made[0].dropout == 0.1
        assert not made[0].training
        assert_close(made[0](X)[0], layer(X)[0])

    def test_a_copy_shares_nothing(self) -> None:
        layer = unrolled.GRU(3, 4)
        made: Any = to_torch(layer)
        with torch.no_grad():
            made.weight_hh_l0.zero_()
        assert layer.get_parameter("weight_hh_l0").any()
        made(X)[0].sum().backward()

    def test_parametrizations_become_their_weights(self) -> None:
        layer = unrolled.LSTM(3, 4)
        nn.utils.parametrizations.weight_norm(layer, "weight_hh_l0")
        assert_close(to_torch(layer)(X)[0], layer(X)[0])

    def test_options_for_training_only(self) -> None:
        layer = unrolled.LSTM(3, 4, variational_dropout=0.5, dropconnect=0.5)
        with pytest.raises(UserError, match=r"torch\.nn\.LSTM has no variational_dropout, dropconnect"):
            to_torch(layer)
        assert_close(to_torch(layer.eval())(X)[0], layer(X)[0])

    def test_an_activation_that_torch_does_not_have(self) -> None:
        with pytest.raises(UserError, match=r"torch\.nn\.RNN has no nonlinearity: this layer cannot become one"):
            to_torch(unrolled.RNN(3, 4, nonlinearity="softsign"))


class TestQuantisation:
    @pytest.mark.parametrize("name", ["GRU", "LSTM"])
    def test_dynamic(self, name: str) -> None:
        ours = model(name, num_layers=2)
        quantised: Any = quantize_dynamic(to_torch(ours), {getattr(nn, name), nn.Linear})
        assert type(quantised.rnn) is getattr(torch.ao.nn.quantized.dynamic, name)
        assert (quantised(X) - ours(X)).abs().max() < 0.05

    @pytest.mark.parametrize("what", [None, {nn.LSTM}, {unrolled.LSTM}, {nn.Linear}], ids=str)
    def test_a_layer_that_stays_in_floats_is_said(self, what: Any) -> None:
        with pytest.warns(
            Note, match=r"unrolled\.LSTM stays in floating point\. Quantise unrolled\.nn\.to_torch\(model"
        ):
            quantised: Any = quantize_dynamic(model("LSTM"), what)
        assert type(quantised.rnn) is unrolled.LSTM

    def test_torch_does_not_quantise_an_rnn_either(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Note)
            quantize_dynamic(model("RNN"))

    def test_fx(self) -> None:
        from torch.ao.quantization import QConfigMapping, default_dynamic_qconfig, quantize_fx

        mapping, ours = QConfigMapping().set_global(default_dynamic_qconfig), model("LSTM")
        with pytest.warns(Note, match=r"unrolled\.LSTM stays in floating point"):
            quantize_fx.prepare_fx(copy.deepcopy(ours), mapping, (X,))
        prepared = quantize_fx.prepare_fx(to_torch(ours), mapping, (X,))
        quantised = quantize_fx.convert_fx(prepared)
        assert type(quantised.rnn) is torch.ao.nn.quantized.dynamic.LSTM
        assert (quantised(X) - ours(X)).abs().max() < 0.05


@pytest.mark.parametrize("options", [{}, {"learned_state": True}])
@pytest.mark.parametrize("name", NAMES)
def test_symbolic_tracing_has_one_node_for_the_layer(name: str, options: dict[str, Any]) -> None:
    ours = model(name, **options)
    graph: Any = torch.fx.symbolic_trace(ours)
    assert [node.target for node in graph.graph.nodes if node.op == "call_module"] == ["rnn", "out"]
    assert torch.equal(graph(X), ours(X))


class TestPerSampleGradients:
    @pytest.mark.parametrize("batch_first", [True, False])
    @pytest.mark.parametrize("name", NAMES)
    def test_expanded_weights(self, name: str, batch_first: bool) -> None:
        layer = getattr(unrolled, name)(3, 4, num_layers=2, bidirectional=True, batch_first=batch_first)
        x = X.transpose(0, 1) if batch_first else X
        call: Any = per_sample(layer, batch_size=2, loss_reduction="sum", batch_first=batch_first)
        call(x)[0].pow(2).sum().backward()
        for row in range(2):
            alone = x[row : row + 1] if batch_first else x[:, row : row + 1]
            wanted = torch.autograd.grad(layer(alone)[0].pow(2).sum(), list(layer.parameters()))
            for parameter, gradient in zip(layer.parameters(), wanted, strict=True):
                assert_close(parameter.grad_sample[row], gradient)

    def test_other_options_point_to_torch_func(self) -> None:
        call: Any = per_sample(unrolled.LSTM(3, 4, peephole=True), batch_size=2, batch_first=False)
        with pytest.raises(
            UserError, match=r"support only torch\.nn's own LSTM: torch\.nn has no peephole.*torch\.func"
        ):
            call(X)

    @pytest.mark.parametrize(
        ("name", "options"), [("LSTM", {}), ("LSTM", {"peephole": True}), ("GRU", {}), ("RNN", {})]
    )
    def test_torch_func(self, name: str, options: dict[str, Any]) -> None:
        layer = getattr(unrolled, name)(3, 4, **options)
        parameters = dict(layer.named_parameters())

        def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
            output: Tensor = torch.func.functional_call(layer, parameters, (x,))[0]
            return output.pow(2).sum()

        found = torch.func.vmap(torch.func.grad(loss), (None, 1))(parameters, X)
        for row in range(2):
            wanted = torch.autograd.grad(loss(parameters, X[:, row]), list(parameters.values()))
            for name, gradient in zip(parameters, wanted, strict=True):
                assert_close(found[name][row], gradient)


class Wrapper:
    """No tensor, but a class that torch's functions ask (`__torch_function__`)."""

    def __init__(self, data: Tensor) -> None:
        self.data = data

    def __getattr__(self, name: str) -> Any:
        return getattr(self.data, name)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def opened(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return type(value)(map(opened, value))
            return value.data if isinstance(value, Wrapper) else value

        result = function(*opened(args), **(kwargs or {}))
        return tuple(map(cls, result)) if isinstance(result, tuple) else cls(result)


class Marked(Tensor):
    """A subclass with torch's default behaviour: what comes of it is of it."""


@pytest.mark.parametrize("name", NAMES)
def test_other_kinds_of_tensors(name: str) -> None:
    ours = getattr(unrolled, name)(3, 4)
    expected = to_torch(ours)(X)[0]
    assert_close(ours(Wrapper(X))[0].data, expected)
    marked = ours(X.as_subclass(Marked))[0]
    assert type(marked) is Marked
    assert_close(marked.as_subclass(Tensor), expected)
    with pytest.raises(UserError, match=r"The input must be a tensor, got Wrapper\."):
        getattr(unrolled, name)(3, 4, layer_norm=True)(Wrapper(X))


class TestExport:
    @pytest.mark.parametrize("strict", [False, True])
    @pytest.mark.parametrize("name", NAMES)
    def test_a_program_holds_torchs_operators(self, name: str, strict: bool) -> None:
        ours = model(name)
        program: Any = torch.export.export(ours, (LONGER,), strict=strict)
        operators = {str(node.target).split(".")[0] for node in program.graph.nodes if node.op == "call_function"}
        assert "unrolled" not in operators
        assert_close(program.module()(LONGER), ours(LONGER))
        assert not any(isinstance(w, torch._subclasses.FakeTensor) for w in ours.rnn._flat_weights)

    @needs_native
    @pytest.mark.parametrize("strict", [False, True])
    @pytest.mark.parametrize(("name", "options"), [("GRU", {}), ("LSTM", {"peephole": True, "bidirectional": True})])
    def test_a_free_number_of_steps_is_our_operator(self, name: str, options: dict[str, Any], strict: bool) -> None:
        """Saved, loaded, and run at other sizes; in a strict export too, which torch's compiler traces."""
        ours, free = Ragged(getattr(unrolled, name)(3, 4, **options)).eval(), torch.export.Dim.DYNAMIC
        given = (LONGER, torch.tensor([7, 0, 4]))
        shapes = ({0: free, 1: free}, {0: free})
        program: Any = torch.export.export(ours, given, dynamic_shapes=shapes, strict=strict)
        assert "unrolled.recurrence" in str(program.graph)
        file = io.BytesIO()
        torch.export.save(program, file)
        file.seek(0)
        loaded: Any = torch.export.load(file).module()
        x, lengths = torch.randn(20, 5, 3), torch.tensor([20, 1, 0, 7, 19])
        assert_close(loaded(x, lengths), ours(x, lengths))

    @needs_native
    def test_a_fixed_number_of_steps_is_portable(self) -> None:
        """torch's operators, with a free batch; an engine by name stays."""
        free, shapes = torch.export.Dim.DYNAMIC, {"x": {1: torch.export.Dim.DYNAMIC}}
        portable: Any = torch.export.export(model("LSTM"), (LONGER,), dynamic_shapes=shapes)
        assert "unrolled" not in str(portable.graph)
        ours = model("LSTM", backend="native")
        program: Any = torch.export.export(ours, (LONGER,), dynamic_shapes={"x": {0: free, 1: free}})
        assert "unrolled.recurrence" in str(program.graph)
        x = torch.randn(20, 5, 3)
        assert_close(program.module()(x), ours(x))


@pytest.mark.parametrize("name", NAMES)
def test_second_derivatives_equal_torchs(name: str) -> None:
    """A gradient penalty: on a CPU it needs no other backend."""
    ours = getattr(unrolled, name)(3, 4, num_layers=2)
    found = []
    for layer in (ours, to_torch(ours)):
        x = X.clone().requires_grad_()
        output, _ = layer(x)
        (slope,) = torch.autograd.grad(output.sum(), x, create_graph=True)
        penalty = (slope.norm(dim=-1) - 1).pow(2).mean()
        found.append([penalty, *torch.autograd.grad(penalty, [x, *layer.parameters()])])
    assert ours.backend_for(X).engine != "reference"
    for mine, other in zip(*found, strict=True):
        assert_close(mine, other)


@pytest.mark.parametrize("name", NAMES)
def test_autocast_gives_torchs_dtypes(name: str) -> None:
    """Weights in bfloat16, inputs and states in float32: an error without autocast, torch's dtypes under it."""
    ours = getattr(unrolled, name)(3, 4, 2).to(torch.bfloat16)
    h = torch.ones(2, 2, 4)
    given = (h, h) if name == "LSTM" else h
    with pytest.raises(ValueError, match=r"RNN input dtype .* does not match weight dtype"):
        ours(X, given)
    with torch.autocast("cpu"):
        output, state = ours(X, given)
        expected, expected_state = to_torch(ours)(X, given)
    assert output.dtype == expected.dtype
    for mine, other in zip(state, expected_state, strict=True):
        assert mine.dtype == other.dtype
    assert (output.float() - expected.float()).abs().max() < 0.05
