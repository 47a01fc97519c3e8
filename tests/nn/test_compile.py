"""torch.compile over networks with our layers: one graph for all batches and lengths, and the same numbers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._inductor.config
from torch import Tensor, nn
from torch._dynamo.utils import counters

import unrolled
from tests.tolerances import assert_close
from unrolled.errors import UserError
from unrolled.kernels import ENGINES
from unrolled.kernels.vocabulary.scores import linear_cross_entropy
from unrolled.nn.crf import CRF
from unrolled.nn.ctc import ctc_loss

pytestmark = pytest.mark.skipif("native" not in ENGINES, reason="the native engine is not built here")
SIZES = ((11, 29), (12, 31))  # batch and steps, unlike other sizes: the compiler takes equal ones for the same symbol
ALL: dict[str, Any] = {"layer_norm": True, "zoneout": 0.2, "variational_dropout": 0.2, "dropconnect": 0.2}
ALL |= {"learned_state": True, "combine": "mix", "num_layers": 2, "dropout": 0.1, "bidirectional": True}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


class Network(nn.Module):
    """A layer with lengths and resets, and one of torch's behind it."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.rnn = layer
        with torch.no_grad():
            width = layer(torch.zeros(1, 1, 3))[0].shape[-1]
        self.out = nn.Linear(width, 2)

    def forward(self, x: Tensor, lengths: Tensor | None = None, resets: Tensor | None = None) -> Tensor:
        output: Tensor = self.out(self.rnn(x, lengths=lengths, resets=resets)[0])
        return output


def ragged(batch: int, steps: int) -> tuple[Tensor, ...]:
    return torch.randn(batch, steps, 3), torch.randint(0, steps + 1, (batch,)), torch.rand(batch, steps) < 0.2


def decoder(form: str) -> tuple[nn.Module, Callable[..., Tensor], Callable[..., tuple[Tensor, ...]]]:
    made = unrolled.nn.AttentionDecoder(3, 4, 4, cell="lstm", form=form)

    def make(batch: int, steps: int) -> tuple[Tensor, ...]:
        mask = torch.arange(steps + 2) < torch.randint(1, steps + 3, (batch, 1))
        lengths = torch.randint(1, steps + 1, (batch,))
        return torch.randn(batch, steps, 3), torch.randn(batch, steps + 2, 4), mask, lengths

    return made, lambda x, memory, mask, lengths: made(x, memory, mask, lengths=lengths).output, make


def losses(name: str) -> tuple[nn.Module, Callable[..., Tensor], Callable[..., tuple[Tensor, ...]]]:
    linear, crf = nn.Linear(3, 5), CRF(5)
    if name == "ctc":

        def frames(batch: int, steps: int) -> tuple[Tensor, ...]:
            lengths = torch.randint(steps - 1, steps + 1, (batch,)), torch.randint(0, 3, (batch,))
            return torch.randn(batch, steps, 3), torch.randint(1, 5, (batch, 2)), *lengths

        return linear, lambda x, *targets: ctc_loss(linear(x).log_softmax(-1), *targets), frames
    if name == "crf":

        def tags(batch: int, steps: int) -> tuple[Tensor, ...]:
            x, lengths, _ = ragged(batch, steps)
            return x, torch.randint(0, 5, (batch, steps)), lengths

        both = nn.ModuleList([linear, crf])
        return both, lambda x, tags, lengths: -crf(linear(x), tags, lengths).sum(), tags

    def words(batch: int, steps: int) -> tuple[Tensor, ...]:
        return torch.randn(batch * steps, 3), torch.randint(0, 5, (batch * steps,))

    return linear, lambda x, targets: linear_cross_entropy(x, linear.weight, linear.bias, targets, 0.1), words


def transformer(name: str) -> tuple[nn.Module, Callable[..., Tensor], Callable[..., tuple[Tensor, ...]]]:
    if name == "decoder":
        made: Any = unrolled.nn.TransformerDecoder(8, 2, 1).eval()
        return made, made, lambda batch, steps: (torch.randn(batch, steps, 8), torch.randn(batch, steps + 1, 8))
    encoder: Any = unrolled.nn.TransformerEncoder(8, 2, 1).eval()
    return encoder, encoder, lambda b, t: (torch.randn(b, t, 8), torch.arange(t) < torch.randint(1, t + 1, (b, 1)))


@pytest.mark.parametrize(
    ("name", "options", "training"),
    [
        ("RNN", ALL, False),
        ("GRU", {**ALL, "reset_after": False}, True),
        ("LSTM", {**ALL, "peephole": True}, False),
        ("LSTM", {**ALL, "peephole": True, "bidirectional": False}, True),
        ("LSTM", {"proj_size": 2}, False),
    ],
)
def test_every_option_is_one_graph(name: str, options: dict[str, Any], training: bool) -> None:
    """In training the masks differ from those of eager calls."""
    network = Network(getattr(unrolled, name)(3, 4, batch_first=True, **options)).train(training)
    compiled: Any = torch.compile(network, fullgraph=True, dynamic=True, backend="eager")
    for batch, steps in SIZES:
        arguments = ragged(batch, steps)
        found = compiled(*arguments)
        assert found.shape == (batch, steps, 2)
        if not training:
            assert_close(found, network(*arguments))
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (decoder, "bahdanau"),
        (decoder, "luong"),
        (losses, "ctc"),
        (losses, "crf"),
        (losses, "vocabulary"),
        (transformer, "encoder"),
        (transformer, "decoder"),
    ],
)
def test_gradients_at_all_lengths(build: Callable[[str], Any], name: str) -> None:
    module, run, make = build(name)
    compiled: Any = torch.compile(run, fullgraph=True, dynamic=True, backend="aot_eager")
    parameters = list(module.parameters())
    for batch, steps in SIZES:
        arguments = make(batch, steps)
        found, expected = compiled(*arguments), run(*arguments)
        assert_close(found, expected)
        got = torch.autograd.grad(found.sum(), parameters, allow_unused=True)
        for mine, right in zip(got, torch.autograd.grad(expected.sum(), parameters, allow_unused=True), strict=True):
            assert (mine is None) == (right is None)
            if mine is not None:
                assert_close(mine, right)
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_auto_stays_on_its_engine_for_few_steps(name: str) -> None:
    """Outside a graph torch's own layer is faster for them; inside, it would be compiled for each length."""
    network = Network(getattr(unrolled, name)(3, 4, batch_first=True))
    compiled: Any = torch.compile(network, fullgraph=True, dynamic=True, backend="eager")
    for steps in (2, 4, 8):
        x = torch.randn(11, steps, 3)
        assert_close(compiled(x), network(x))
    assert counters["stats"]["unique_graphs"] == 1


# g++ would try every instruction set, and compile headers that later graphs would use
FEW_COMPILERS = {"cpp.vec_isa_ok": False, "cpp_cache_precompile_headers": False, "compile_threads": 1}


@pytest.fixture
def few_compilers() -> Iterator[None]:
    with torch._inductor.config.patch(FEW_COMPILERS):
        yield


@pytest.mark.usefixtures("few_compilers")
def test_inductor() -> None:
    """The default backend, with the mode that asks for CUDA graphs on a GPU; benchmarks/compiled.py has more."""
    network, x = Network(unrolled.LSTM(3, 4, batch_first=True)), torch.randn(2, 7, 3)
    compiled: Any = torch.compile(network, fullgraph=True, mode="reduce-overhead")
    found = compiled(x)
    assert_close(found, network(x))
    got = torch.autograd.grad(found.sum(), list(network.parameters()))
    for mine, right in zip(got, torch.autograd.grad(network(x).sum(), list(network.parameters())), strict=True):
        assert_close(mine, right)


def test_torchs_own_layers_are_left_alone() -> None:
    compiled: Any = torch.compile(Network(nn.LSTM(3, 4, batch_first=True)).rnn, fullgraph=True, backend="eager")
    with pytest.raises(Exception, match=r"Dynamo does not support RNN, GRU, or LSTM"):
        compiled(torch.randn(2, 5, 3))
    assert not torch._dynamo.config.allow_rnn


def test_a_class_derived_from_ours() -> None:
    class Own(unrolled.GRU):
        pass

    layer, x = Own(3, 4), torch.randn(5, 2, 3)
    assert_close(torch.compile(layer, fullgraph=True, backend="eager")(x)[0], layer(x)[0])


def test_functional_call() -> None:
    network = Network(unrolled.GRU(3, 4, batch_first=True))
    x, doubled = torch.randn(2, 5, 3), {name: 2 * p.detach() for name, p in network.named_parameters()}

    def call(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        output: Tensor = torch.func.functional_call(network, parameters, (x,))
        return output

    compiled: Any = torch.compile(call, fullgraph=True, backend="eager")
    assert_close(compiled(doubled, x), call(doubled, x))


@pytest.mark.parametrize("wrong", [-1, 8])
def test_lengths_are_checked_when_the_graph_runs(wrong: int) -> None:
    network = Network(unrolled.LSTM(3, 4, batch_first=True))
    compiled: Any = torch.compile(network, fullgraph=True, backend="aot_eager")
    with pytest.raises(UserError, match=rf"lengths\[1\]={wrong} is .*Expected 0 to 7\."):
        compiled(torch.randn(2, 7, 3), torch.tensor([7, wrong]))


@pytest.mark.parametrize(
    ("targets", "lengths", "message"),
    [
        ([[1, 5], [1, 1]], [2, 2], r"The target of sample 0 holds the label 5\. Labels go from 0 to 4, without the"),
        ([[1, 0], [1, 1]], [2, 2], r"The target of sample 0 holds the label 0\."),
        ([[1, 2], [1, 1]], [2, 3], r"target_lengths \[2, 3\] do not go with 4 labels in all\."),
    ],
)
def test_ctc_targets_are_checked_when_the_graph_runs(targets: Any, lengths: Any, message: str) -> None:
    compiled: Any = torch.compile(ctc_loss, fullgraph=True, backend="eager")
    with pytest.raises(UserError, match=message):
        compiled(torch.zeros(2, 6, 5), torch.tensor(targets), None, torch.tensor(lengths))


def test_ctc_frames_are_checked_when_the_graph_runs() -> None:
    compiled: Any = torch.compile(ctc_loss, fullgraph=True, backend="eager")
    with pytest.raises(UserError, match=r"input_lengths has \[6, 7\], but there are 6 frames\. Use lengths from 0 to"):
        compiled(torch.zeros(2, 6, 5), torch.tensor([[1], [1]]), torch.tensor([6, 7]))


def test_the_compiler_is_not_imported_before_it_is_needed() -> None:
    code = (
        "import sys, torch, unrolled\n"
        "layer = unrolled.LSTM(3, 4)\n"
        "layer(torch.zeros(2, 1, 3))\n"
        "assert 'torch._dynamo' not in sys.modules\n"
        "output, _ = torch.compile(layer, fullgraph=True, backend='eager')(torch.zeros(2, 1, 3))\n"
        "assert output.shape == (2, 1, 4)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


class TestTransforms:
    """torch.func: an engine by name refuses; `auto` and the losses compute in plain torch."""

    def test_an_engine_by_name(self) -> None:
        layer = unrolled.LSTM(3, 4, backend="native")
        with pytest.raises(UserError, match=r"'native' cannot do this: it has no torch\.func transforms"):
            torch.func.vmap(lambda x: layer(x)[0])(torch.randn(2, 5, 3, 3))

    @pytest.mark.parametrize("name", ["ctc", "crf", "vocabulary"])
    def test_losses(self, name: str) -> None:
        _, run, make = losses(name)
        x, *others = make(3, 7)
        expected = torch.autograd.grad(run(x.requires_grad_(), *others), x)[0]
        assert_close(torch.func.grad(run)(x.detach(), *others), expected)
