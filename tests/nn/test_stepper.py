"""Streaming: one step at a time gives what the whole sequence gives."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import unrolled
from tests import warm
from tests.tolerances import assert_close
from unrolled import kernels
from unrolled.errors import UserError
from unrolled.kernels import ENGINES
from unrolled.nn import stepper as stepper_module
from unrolled.nn.dropin import DropIn
from unrolled.nn.stepper import Stepper

needs_native = pytest.mark.skipif("native" not in ENGINES, reason="the native engine is not built here")

LAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    "lstm": ("LSTM", {}),
    "lstm no bias": ("LSTM", {"bias": False}),
    "peephole": ("LSTM", {"peephole": True}),
    "peephole previous, zoneout": ("LSTM", {"peephole": "previous", "zoneout": (0.2, 0.1)}),
    "lstm layer norm": ("LSTM", {"layer_norm": True}),
    "projection": ("LSTM", {"proj_size": 5}),
    "gru": ("GRU", {}),
    "gru before": ("GRU", {"reset_after": False}),
    "gru layer norm": ("GRU", {"layer_norm": True, "learned_state": True}),
    "gru before layer norm": ("GRU", {"layer_norm": True, "reset_after": False}),
    "rnn": ("RNN", {"variational_dropout": 0.3, "dropconnect": 0.2}),
    "relu": ("RNN", {"nonlinearity": "relu"}),
    "concat": ("RNN", {"combine": "concat"}),
    "mix": ("GRU", {"combine": "mix"}),
    "other activation": ("RNN", {"nonlinearity": "softsign"}),
}


def make(kind: str, features: int, hidden: int, layers: int) -> DropIn:
    torch.manual_seed(0)
    name, options = LAYERS[kind]
    layer: DropIn = getattr(unrolled, name)(features, hidden, num_layers=layers, batch_first=True, **options)
    with torch.no_grad():
        for key, parameter in layer.named_parameters():
            # small gains in the recurrence: with large ones it is chaotic, and rounding decides
            parameter.mul_(0.2 if key.startswith("norm_hh") else 1.0).add_(torch.randn_like(parameter) * 0.05)
    return layer.eval()


def stream(stepper: Stepper, x: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    state, outputs = stepper.initial_state(x.shape[0]), []
    for t in range(x.shape[1]):
        output, state = stepper(x[:, t], state)
        outputs.append(output)
    return torch.stack(outputs, dim=1), state


def error(got: torch.Tensor, expected: torch.Tensor) -> float:
    return float((got.double() - expected.double()).norm() / expected.double().norm())


@pytest.mark.parametrize(("batch", "features", "hidden", "layers"), [(1, 7, 17, 2), (3, 20, 130, 1), (9, 5, 64, 3)])
@pytest.mark.parametrize("kind", LAYERS)
def test_steps_equal_the_layer(kind: str, batch: int, features: int, hidden: int, layers: int) -> None:
    layer = make(kind, features, hidden, layers)
    x = torch.randn(batch, 12, features)
    with torch.no_grad():
        expected, final = layer(x)
    output, state = stream(layer.stepper(), x)
    assert_close(output, expected)
    for ours, theirs in zip(state, final if isinstance(final, tuple) else (final,), strict=True):
        assert_close(ours.transpose(0, 1), theirs)


@needs_native
@pytest.mark.parametrize("isa", ["plain", "avx2", "avx512", "neon", "neon_dot"])
def test_every_instruction_set(isa: str) -> None:
    from unrolled.kernels import _native

    if isa not in _native.isas():
        pytest.skip(f"this processor has no {isa}")
    code = (
        "import torch\n"
        "from tests.nn.test_stepper import LAYERS, make, stream, error\n"
        "for kind in LAYERS:\n"
        "    if kind == 'other activation': continue\n"
        "    layer = make(kind, 20, 67, 2)\n"
        "    x = torch.randn(3, 12, 20)\n"
        "    with torch.no_grad(): expected = layer(x)[0]\n"
        "    for weights, bound in (('fp32', 1e-5), ('fp16', 1e-2), ('int16', 1e-2), ('int8', 2e-1)):\n"
        "        got = error(stream(layer.stepper(weights), x)[0], expected)\n"
        "        assert got <= bound, (kind, weights, got)\n"
    )
    warm.python("-c", code, env={"UNROLLED_ISA": isa}, check=True)


@needs_native
@pytest.mark.parametrize(("weights", "bound"), [("fp32", 1e-5), ("fp16", 1e-3), ("int16", 1e-3), ("int8", 1e-2)])
@pytest.mark.parametrize("kind", ["lstm", "gru", "gru before", "rnn"])
def test_error_over_a_thousand_steps(kind: str, weights: str, bound: float) -> None:
    """Against float64, with torch's initial weights, at a size that is really streamed."""
    torch.manual_seed(1)
    name, options = LAYERS[kind]
    layer = getattr(unrolled, name)(64, 128, batch_first=True, **options).eval()
    exact = getattr(unrolled, name)(64, 128, batch_first=True, **options, backend="reference").double().eval()
    exact.load_state_dict(layer.state_dict())
    x = torch.randn(1, 1000, 64)
    with torch.no_grad():
        expected = exact(x.double())[0]
    assert error(stream(layer.stepper(weights), x)[0], expected) <= bound


@needs_native
def test_a_nan_shows_in_every_kind_of_weights() -> None:
    layer = unrolled.LSTM(3, 20)
    x = torch.tensor([[0.0, float("nan"), 1.0]])
    for weights in stepper_module.WEIGHTS:
        stepper = layer.stepper(weights)
        assert stepper(x, stepper.initial_state(1))[0].isnan().all()


def test_old_states_stay_as_they_were() -> None:
    stepper = unrolled.LSTM(3, 4).stepper()
    first = stepper.initial_state(2)
    _, second = stepper(torch.randn(2, 3), first)
    kept = [s.clone() for s in second]
    stepper(torch.randn(2, 3), second)
    assert all(torch.equal(a, b) for a, b in zip(second, kept, strict=True))
    assert all(not s.any() for s in first)


@pytest.mark.parametrize("kind", ["lstm", "gru", "peephole previous, zoneout", "concat", "other activation"])
def test_a_stream_is_its_stepper_with_the_state_kept(kind: str) -> None:
    layer = make(kind, 7, 33, 2)
    stepper = layer.stepper()
    x, state = torch.randn(3, 6, 7), stepper.initial_state(3)
    stream = stepper.stream(3)
    outputs = []
    for t in range(6):
        expected, state = stepper(x[:, t], state)
        outputs.append((stream.feed(x[:, t]), expected))
    assert all(torch.equal(output, expected) for output, expected in outputs)
    assert all(torch.equal(a, b) for a, b in zip(stream.state, state, strict=True))


@pytest.mark.parametrize("kind", ["lstm", "concat"])
def test_a_stream_goes_on_from_the_state_it_is_given(kind: str) -> None:
    stepper = make(kind, 3, 4, 2).stepper()
    stream, x = stepper.stream(2), torch.randn(2, 3)
    given = tuple(torch.randn_like(s) for s in stream.state)
    kept = tuple(s.clone() for s in given)
    stream.state = given
    assert torch.equal(stream.feed(x), stepper(x, given)[0])
    after = stream.state
    stream.feed(x)
    assert all(torch.equal(a, b) for a, b in zip(given, kept, strict=True))
    assert not torch.equal(after[0], stream.state[0])


def test_streams_of_one_stepper_are_apart() -> None:
    stepper = unrolled.LSTM(3, 4, learned_state=True).stepper()
    one, other = stepper.stream(), stepper.stream()
    x = torch.randn(1, 3)
    first = one.feed(x)
    one.feed(x)
    assert torch.equal(other.feed(x), first)


def test_a_stream_outlives_its_stepper() -> None:
    stream, x = unrolled.LSTM(3, 4).stepper().stream(), torch.randn(1, 3)
    assert not torch.equal(stream.feed(x), stream.feed(x))


@needs_native
def test_outputs_outlive_everything() -> None:
    stepper = unrolled.LSTM(3, 40).stepper()
    output, state = stepper(torch.randn(2, 3), stepper.initial_state(2))
    kept = output.clone()
    del state, stepper
    for _ in range(10):
        torch.full((2, 40), float("nan"))
    assert torch.equal(output, kept)


@needs_native
@pytest.mark.parametrize("weights", stepper_module.WEIGHTS)
def test_helpers_change_nothing(weights: str) -> None:
    """The same bits on one thread and on two, with helpers asleep, awake and late."""
    layer, x = unrolled.LSTM(64, 300).eval(), torch.randn(400, 1, 64)
    stepper, threads = layer.stepper(weights), torch.get_num_threads()
    outputs = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            stream = stepper.stream()
            outputs.append(torch.stack([stream.feed(one) for one in x]))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*outputs)


@needs_native
def test_several_threads_of_python_may_step_at_once() -> None:
    stepper, x = unrolled.LSTM(64, 300).stepper(), torch.randn(200, 1, 64)
    expected = list(map(stepper.stream().feed, x))

    def run(_: int) -> bool:
        return all(torch.equal(a, b) for a, b in zip(map(stepper.stream().feed, x), expected, strict=True))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(8)))


@needs_native
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_steps() -> None:
    code = (
        "import os, torch, unrolled\n"
        "stream, x = unrolled.LSTM(64, 300).stepper().stream(), torch.randn(1, 64)\n"
        "for _ in range(300): stream.feed(x)\n"
        "child = os.fork()\n"
        "for _ in range(300): stream.feed(x)\n"
        "if child == 0: os._exit(7)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@needs_native
@pytest.mark.parametrize("batch", [1, 3])
def test_tensors_of_any_origin(batch: int) -> None:
    """Views, tensors that require gradients, parameters, and those made in inference mode."""
    stepper, x = unrolled.LSTM(3, 4).stepper(), torch.randn(batch, 3)
    state = tuple(torch.randn(batch, 1, 4) for _ in range(2))
    expected = stepper(x, state)[0]
    padded = torch.zeros(batch, 5)
    padded[:, 1:4] = x
    with torch.inference_mode():
        inference = x.clone()
    for same in (padded[:, 1:4], x.clone().requires_grad_(), torch.nn.Parameter(x), inference, x.t().clone().t()):
        output = stepper(same, state)[0]
        assert torch.equal(output, expected)
        assert not output.requires_grad
    assert torch.equal(stepper(x, list(state))[0], expected)  # type: ignore[arg-type]


def _optimize(layer: DropIn, **options: Any) -> None:
    optimizer = torch.optim.Adam(layer.parameters(), 0.1, **options)
    layer(torch.randn(2, 3, 3))[0].sum().backward()
    optimizer.step()


def _replace(layer: DropIn) -> None:
    layer.weight_hh_l0 = torch.nn.Parameter(torch.randn_like(layer.get_parameter("weight_hh_l0")))


def _overwrite(layer: DropIn) -> None:
    with torch.no_grad():
        layer.get_parameter("bias_hh_l0").add_(1)


CHANGES: dict[str, Callable[[DropIn], object]] = {
    "an optimizer's step": _optimize,
    "a fused optimizer's step": lambda layer: _optimize(layer, fused=True),
    "load_state_dict": lambda layer: layer.load_state_dict(unrolled.GRU(3, 4).state_dict()),
    "one parameter in place": _overwrite,
    "reset_parameters": lambda layer: layer.reset_parameters(),
}
REPLACEMENTS: dict[str, Callable[[DropIn], object]] = {
    "load_state_dict by assignment": lambda layer: layer.load_state_dict(unrolled.GRU(3, 4).state_dict(), assign=True),
    "another parameter": _replace,
    "other data": lambda layer: setattr(layer.get_parameter("weight_ih_l0"), "data", torch.zeros(12, 3)),
    "fewer bits": lambda layer: layer.half(),
}
STALE = r"^The layer's weights have changed since this stepper was made; .* Make a new one: layer\.stepper\(\)\."


@pytest.mark.parametrize("engine", ["auto", "torch"])
@pytest.mark.parametrize("change", CHANGES)
def test_changed_weights_are_noticed_at_the_next_step(change: str, engine: str) -> None:
    options: dict[str, Any] = {} if engine == "auto" else {"activation": "softsign"}
    layer = unrolled.GRU(3, 4, **options)
    stepper, x = layer.stepper(), torch.randn(1, 3)
    stream, state = stepper.stream(), stepper.initial_state(1)
    stepper(x, state)
    stream.feed(x)
    CHANGES[change](layer)
    for stale in (lambda: stepper(x, state), lambda: stream.feed(x), lambda: stepper.initial_state(1)):
        with pytest.raises(UserError, match=STALE):
            stale()
    assert_close(layer.stepper()(x, state)[0], layer(x[None])[0][0])


@pytest.mark.parametrize("change", [*CHANGES, *REPLACEMENTS])
def test_changed_weights_are_noticed_when_a_sequence_begins(change: str) -> None:
    """Here also parameters that were replaced, which no counter tells of."""
    layer = unrolled.GRU(3, 4)
    stepper = layer.stepper()
    {**CHANGES, **REPLACEMENTS}[change](layer)
    with pytest.raises(UserError, match=STALE):
        stepper.initial_state(1)
    with pytest.raises(UserError, match=STALE):
        stepper.stream()


def test_changes_that_keep_all_numbers_are_allowed() -> None:
    layer = make("gru layer norm", 3, 4, 2)
    stepper, x = layer.stepper(), torch.randn(1, 3)
    state = stepper.initial_state(1)
    expected = stepper(x, state)[0]
    for harmless in (
        lambda: layer.load_state_dict(layer.state_dict()),
        lambda: layer.double(),
        lambda: layer.train(),
        lambda: layer.requires_grad_(False),
        lambda: layer.share_memory(),
    ):
        harmless()
        assert torch.equal(stepper(x, state)[0], expected)
        assert torch.equal(stepper.stream().feed(x), expected)


def test_another_models_training_does_not_matter() -> None:
    layer = unrolled.GRU(3, 4)
    stepper, seen = layer.stepper(), layer.stepper()._watch.seen
    _optimize(unrolled.GRU(3, 4), fused=True)
    assert stepper._watch.seen == seen
    stepper(torch.randn(1, 3), stepper.initial_state(1))


def test_a_layer_is_not_kept_alive() -> None:
    layer = unrolled.GRU(3, 4)
    stepper, x = layer.stepper(), torch.randn(1, 3)
    weight = weakref.ref(layer.get_parameter("weight_hh_l0"))
    expected = stepper(x, stepper.initial_state(1))[0]
    del layer
    assert weight() is None
    assert torch.equal(stepper(x, stepper.initial_state(1))[0], expected)


def test_a_copy_keeps_the_old_weights() -> None:
    layer = unrolled.GRU(3, 4)
    stepper = copy.deepcopy(layer).stepper()
    _optimize(layer)
    stepper(torch.randn(1, 3), stepper.initial_state(1))


def test_weights_made_in_inference_mode() -> None:
    """They have no counters; closer looks see what is to be seen."""
    with torch.inference_mode():
        layer = unrolled.GRU(3, 4)
    stepper = layer.stepper()
    stepper(torch.randn(1, 3), stepper.initial_state(1))


def test_states_may_be_views() -> None:
    stepper = unrolled.LSTM(3, 4, num_layers=2).stepper()
    x, state = torch.randn(4, 3), tuple(torch.randn(4, 2, 4) for _ in range(2))
    beams = torch.tensor([2, 0, 1, 3])
    expected = stepper(x[beams], tuple(s[beams] for s in state))[0]
    strided = tuple(s.transpose(1, 2).contiguous().transpose(1, 2)[beams] for s in state)
    assert torch.equal(stepper(x[beams], strided)[0], expected)


class TestRefusals:
    def test_bidirectional(self) -> None:
        with pytest.raises(UserError, match=r"bidirectional layer cannot take one step at a time.*needs the future"):
            unrolled.LSTM(3, 4, bidirectional=True).stepper()

    def test_unknown_weights(self) -> None:
        with pytest.raises(UserError, match=r"Unknown kind of weights 'fp8'. Choices: fp16, fp32, int16, int8"):
            unrolled.LSTM(3, 4).stepper("fp8")

    def test_shapes(self) -> None:
        stepper = unrolled.LSTM(3, 4).stepper()
        state = stepper.initial_state(2)
        with pytest.raises(UserError, match=r"The input has shape \(2, 5\)\. Expected \(batch, 3\)"):
            stepper(torch.zeros(2, 5), state)
        with pytest.raises(UserError, match=r"The state has shapes .* Expected \[\(1, 1, 4\), \(1, 1, 4\)\]"):
            stepper(torch.zeros(1, 3), state)
        with pytest.raises(UserError, match=r"The state has shapes"):
            stepper(torch.zeros(2, 3), state[:1])

    def test_stream(self) -> None:
        stepper = unrolled.LSTM(3, 4).stepper()
        with pytest.raises(UserError, match=r"batch_size=0 is not a number of sequences. Use 1 or more."):
            stepper.stream(0)
        stream = stepper.stream(2)
        with pytest.raises(UserError, match=r"The input has shape \(1, 3\)\. Expected \(2, 3\)"):
            stream.feed(torch.zeros(1, 3))
        with pytest.raises(UserError, match=r"The state has shapes .* Expected \[\(2, 1, 4\), \(2, 1, 4\)\]"):
            stream.state = stepper.initial_state(1)

    @needs_native
    def test_dtype(self) -> None:
        stepper = unrolled.LSTM(3, 4).stepper()
        state = stepper.initial_state(2)
        with pytest.raises(UserError, match=r"The input is torch.float64 on cpu. Expected torch.float32"):
            stepper(torch.zeros(2, 3, dtype=torch.float64), state)
        with pytest.raises(UserError, match=r"The state is torch.float64 on cpu"):
            stepper(torch.zeros(2, 3), tuple(s.double() for s in state))
        with pytest.raises(UserError, match=r"The input is torch.float64 on cpu"):
            stepper.stream(2).feed(torch.zeros(2, 3, dtype=torch.float64))
        with pytest.raises(UserError, match=r"The state is torch.float64 on cpu"):
            stepper.stream(2).state = tuple(s.double() for s in state)

    def test_small_weights_of_a_cell_the_engine_does_not_have(self) -> None:
        with pytest.raises(UserError, match=r"weights='int8' needs the native engine, which cannot run this"):
            unrolled.RNN(3, 4, nonlinearity="softsign").stepper("int8")

    def test_not_built(self, monkeypatch: pytest.MonkeyPatch) -> None:
        without = {name: engine for name, engine in ENGINES.items() if name != "native"}
        monkeypatch.setattr(stepper_module, "ENGINES", without)
        monkeypatch.setitem(kernels.NOT_BUILT, "native", "no compiler")
        layer = make("peephole", 3, 4, 2)
        x = torch.randn(2, 5, 3)
        with torch.no_grad():
            assert_close(stream(layer.stepper(), x)[0], layer(x)[0])
        assert "torch: it is not built" in repr(layer.stepper())
        with pytest.raises(UserError, match=r"weights='fp16' needs the native engine.*not built \(no compiler\)"):
            layer.stepper("fp16")


@needs_native
def test_a_torch_that_does_not_hand_over_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ENGINES["native"], "TAKES_TENSORS", False)
    layer, x = make("lstm", 3, 4, 2), torch.randn(2, 5, 3)
    with torch.no_grad():
        assert_close(stream(layer.stepper(), x)[0], layer(x)[0])
    assert "torch: this torch does not hand tensors to C" in repr(layer.stepper())


def test_repr_says_what_runs() -> None:
    assert "weights='fp32'" in repr(unrolled.LSTM(3, 4).stepper())
