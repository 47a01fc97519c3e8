"""The native engine against `reference` in float64: outputs, final states and every gradient."""

from __future__ import annotations

import copy
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

import unrolled
from tests import warm
from tests.kernels.pairs import pairwise
from tests.tolerances import assert_close
from unrolled import kernels
from unrolled.cells import BuiltIn, GRUCell, LSTMCell, RNNCell
from unrolled.errors import UserError
from unrolled.kernels import ENGINES, ScanJob, choose, make_job, scan, scan_traced

pytestmark = pytest.mark.skipif("native" not in ENGINES, reason="the native engine is not built here")

CHOICES: dict[str, tuple[Any, ...]] = {
    "kind": ("rnn", "relu", "lstm", "gru", "gru_before"),
    "steps": (1, 2, 63, 100),
    "batch": (1, 2, 5, 33),
    "hidden": (1, 3, 16, 17, 64, 100, 130),
    "lengths": (False, True),
    "resets": (None, "zero", "learned"),
    "reverse": (False, True),
    "keep": (None, "rate", "drawn"),
    "mask": (False, True),
    "norm": (False, True),
    "bias": (True, False),
    "time_major": (False, True),
    "peephole": (None, "current", "previous"),
    "projection": (False, True),
}


def make(case: dict[str, Any]) -> ScanJob:
    """A job in float64, drawn for a case."""
    kind, batch, steps, hidden = case["kind"], case["batch"], case["steps"], case["hidden"]
    drawn = torch.Generator().manual_seed(zlib.crc32(repr(case).encode()))
    gates = {"rnn": 1, "relu": 1, "lstm": 4, "gru": 3, "gru_before": 3}[kind]

    def normal(*shape: int, scale: float = 0.3) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=drawn) * scale

    features = 6
    width = max(1, hidden - 2) if case["projection"] and kind == "lstm" else hidden
    norm = case["norm"] and hidden > 3  # over one or two numbers the layer norm of any input is the same
    given: dict[str, Any] = {
        "weight_ih": normal(gates * hidden, features),
        "weight_hh": normal(gates * hidden, width, scale=0.5 / width**0.5),
    }
    if case["bias"]:
        given |= {"bias_ih": normal(gates * hidden), "bias_hh": normal(gates * hidden)}
    if norm:  # small gains: with large ones the recurrence is chaotic, and float32 cannot follow float64
        given |= {"norm_ih": 1 + normal(gates * hidden), "norm_hh": 0.2 + normal(gates * hidden, scale=0.05)}
    if kind == "relu":
        given["activation"] = torch.relu
    if kind == "gru_before":
        given["reset_after"] = False
    if kind == "lstm":
        if norm:
            given |= {"norm_c": 0.5 + normal(hidden, scale=0.1), "norm_c_bias": normal(hidden)}
        if width != hidden:
            given["weight_hr"] = normal(width, hidden, scale=0.5 / hidden**0.5)
        if case["peephole"]:
            given |= {"weight_peephole": normal(3, hidden), "peephole_output": case["peephole"]}
    if case["mask"]:
        given["hidden_mask"] = (torch.rand(batch, width, generator=drawn) < 0.7).double() / 0.7
    cell = {"lstm": LSTMCell, "gru": GRUCell, "gru_before": GRUCell}.get(kind, RNNCell)(**given)
    sizes = cell.state_sizes
    x = normal(steps, batch, features, scale=1.0).transpose(0, 1)
    x = x if case["time_major"] else x.contiguous()
    keep: Any = None
    if case["keep"] == "rate":
        keep = (0.3, 0.2)[: len(sizes)]
    elif case["keep"] == "drawn":
        keep = tuple((torch.rand(batch, steps, size, generator=drawn) < 0.3).double() for size in sizes)
    lengths = torch.randint(0, steps + 1, (batch,), generator=drawn) if case["lengths"] else None
    if lengths is not None and batch > 1:
        lengths[0] = 0
    resets = torch.rand(batch, steps, generator=drawn) < 0.2 if case["resets"] else None
    reset_state = tuple(normal(batch, size) for size in sizes) if case["resets"] == "learned" else None
    state = tuple(normal(batch, size) for size in sizes)
    return make_job(cell, x, state, lengths, resets, reset_state, keep, case["reverse"])


def leaves(job: ScanJob) -> dict[str, Tensor]:
    """Everything that has a gradient, by name."""
    assert isinstance(job.cell, BuiltIn)
    weights = {field.name: getattr(job.cell, field.name) for field in fields(job.cell)}
    found = {name: w for name, w in weights.items() if isinstance(w, Tensor) and name != "hidden_mask"}
    found["x"] = job.x
    found |= {f"{name}_0": s for name, s in zip(job.cell.state_names, job.state, strict=True)}
    if job.reset_state:
        found |= {f"reset_{name}": s for name, s in zip(job.cell.state_names, job.reset_state, strict=True)}
    return found


def cast(job: ScanJob, dtype: torch.dtype) -> ScanJob:
    """The same job in another dtype, its tensors leaves of a new graph."""

    def new(value: Any, leaf: bool = True) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        copied = value.detach().to(dtype, memory_format=torch.preserve_format, copy=True)
        return copied.requires_grad_() if leaf else copied

    assert isinstance(job.cell, BuiltIn)
    weights = {f.name: new(getattr(job.cell, f.name), leaf=f.name != "hidden_mask") for f in fields(job.cell)}
    return replace(
        job,
        cell=replace(job.cell, **weights),
        x=new(job.x),
        state=tuple(map(new, job.state)),
        reset_state=tuple(map(new, job.reset_state)) if job.reset_state else None,
        keep=tuple(new(k, leaf=False) for k in job.keep) if job.keep else None,
    )


def results(job: ScanJob, engine: str) -> dict[str, Tensor]:
    """Outputs, final states and gradients of a loss that weighs all of them differently."""
    output, state = ENGINES[engine].run(job)
    loss = sum((v * torch.linspace(-1, 1, v.numel(), dtype=v.dtype).view(v.shape)).sum() for v in (output, *state))
    assert isinstance(loss, Tensor)
    wanted = leaves(job)
    gradients = torch.autograd.grad(loss, list(wanted.values()), allow_unused=True)
    found = {"output": output} | {f"final {i}": s for i, s in enumerate(state)}
    for (name, leaf), gradient in zip(wanted.items(), gradients, strict=True):
        found[f"gradient of {name}"] = torch.zeros_like(leaf) if gradient is None else gradient
    return found


def compare(job: ScanJob) -> None:
    expected = results(cast(job, torch.float64), "reference")
    got = results(cast(job, torch.float32), "native")
    for name, value in expected.items():
        assert_close(got[name], value.float(), name)


@pytest.fixture(autouse=True)
def _nan_buffers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fresh buffers and scratch are NaN: what is read before it is written shows."""
    from unrolled.kernels import _native, native_buffers

    monkeypatch.setattr(native_buffers, "fill_with_nan", True)
    _native.set_scratch_nan(True)
    yield
    _native.set_scratch_nan(False)


CASES = list(pairwise(CHOICES, seed=0))


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_equals_reference(case: dict[str, Any]) -> None:
    compare(make(case))


PLAIN = {name: values[0] for name, values in CHOICES.items()}


@pytest.mark.parametrize("kind", CHOICES["kind"])
@pytest.mark.parametrize("threads", [1, 3, 4])
def test_threads(kind: str, threads: int) -> None:
    """More threads than rows, and rows that do not divide: members of a group, and groups."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for batch, hidden in ((1, 130), (33, 64), (13, 130)):
            compare(make({**PLAIN, "kind": kind, "batch": batch, "hidden": hidden, "steps": 20, "norm": batch == 13}))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kind", CHOICES["kind"])
def test_nan_in_padding_does_not_matter(kind: str) -> None:
    job = make({**PLAIN, "kind": kind, "steps": 9, "batch": 5, "hidden": 17, "lengths": True, "norm": kind == "gru"})
    assert job.lengths is not None
    clean = results(cast(job, torch.float32), "native")
    dirty = replace(job, x=torch.where(job.active[..., None], job.x, float("nan")))  # type: ignore[index]
    for name, value in results(cast(dirty, torch.float32), "native").items():
        assert torch.equal(value, clean[name]), name


@pytest.mark.parametrize("kind", CHOICES["kind"])
def test_nan_and_infinity_go_through(kind: str) -> None:
    job = cast(make({**PLAIN, "kind": kind, "steps": 4, "batch": 5, "hidden": 17}), torch.float32)
    x = job.x.detach().clone()
    x[1, 2], x[2, 1] = float("nan"), float("inf")
    for value, expected in zip(
        results(replace(job, x=x.requires_grad_()), "native").values(),
        results(replace(job, x=x.detach().requires_grad_()), "reference").values(),
        strict=True,
    ):
        assert torch.equal(value.isnan(), expected.isnan())


@pytest.mark.parametrize("isa", ["plain", "avx2", "avx512"])
def test_every_instruction_set(isa: str) -> None:
    """The same comparison in a process that is told which kernels to use."""
    from unrolled.kernels import _native

    if isa not in _native.isas():
        pytest.skip(f"this processor has no {isa}")
    code = (
        "from tests.kernels.test_native import CASES, make, compare\n"
        "from unrolled.kernels import _native\n"
        f"assert _native.isa() == {isa!r}\n"
        "for case in CASES[::3]: compare(make({**case, 'steps': min(case['steps'], 20)}))\n"
    )
    warm.python("-c", code, env={"UNROLLED_ISA": isa}, check=True)


def test_an_unknown_instruction_set_is_refused() -> None:
    run = warm.python("-c", "import unrolled.kernels", env={"UNROLLED_ISA": "avx1024"})
    assert "UNROLLED_ISA=avx1024 does not run here. Choices: " in run.stderr


def test_functions_are_exact_to_a_few_units_in_the_last_place() -> None:
    """σ and tanh as the kernels compute them, through cells that do nothing else."""
    x = torch.cat([torch.linspace(-30, 30, 40_001), torch.logspace(-20, 1, 5_000), -torch.logspace(-20, 1, 5_000)])

    def ulps(got: Tensor, exact: Tensor) -> float:
        spacing = torch.nextafter(exact.abs().float(), torch.tensor(torch.inf)).double() - exact.abs().float().double()
        return ((got.double() - exact) / spacing).abs().max().item()

    one, zero = torch.ones(1, 1), torch.zeros(1, 1)
    h, _ = scan(RNNCell(one, zero), x[:, None, None], backend="native")
    assert ulps(h[:, 0, 0], torch.tanh(x.double())) <= 5
    # h = (1 − z)∘n + z∘h with n = 0 and h = 1 is σ(z's sum)
    gru = GRUCell(torch.tensor([[0.0], [1.0], [0.0]]), torch.zeros(3, 1))
    h, _ = scan(gru, x[:, None, None], (torch.ones(len(x), 1),), backend="native")
    assert ulps(h[:, 0, 0], torch.sigmoid(x.double())) <= 5


@pytest.mark.parametrize("kind", CHOICES["kind"])
def test_trace_is_what_the_run_was(kind: str) -> None:
    case = {**PLAIN, "kind": kind, "steps": 9, "batch": 5, "hidden": 17, "lengths": True, "resets": "learned"}
    for extra in ({}, {"reverse": True, "keep": "drawn", "mask": True}, {"norm": True, "projection": True}):
        job = make({**case, **extra})
        ours, theirs = cast(job, torch.float32), cast(job, torch.float64)
        output, state, trace = ENGINES["native"].run_traced(ours)
        plain_output, plain_state = ENGINES["native"].run(ours)
        assert torch.equal(output, plain_output)
        assert all(torch.equal(a, b) for a, b in zip(state, plain_state, strict=True))
        expected_output, _, expected = ENGINES["reference"].run_traced(theirs)
        for part in ("entering", "states", "gates", "taken"):
            for name, value in getattr(expected, part).items():
                assert_close(getattr(trace, part)[name], value.float(), f"{part} {name}")
        assert_close(trace.gates_x, expected.gates_x.float())
        weight = torch.linspace(-1, 1, output.numel()).view(output.shape)
        got = torch.autograd.grad((output * weight).sum(), list(trace.probes.values()), allow_unused=True)
        exact = torch.autograd.grad(
            (expected_output * weight.double()).sum(), list(expected.probes.values()), allow_unused=True
        )
        for name, mine, right in zip(trace.probes, got, exact, strict=True):
            assert mine is not None
            assert_close(mine, torch.zeros_like(mine) if right is None else right.float(), f"∂L/∂{name}")


class TestWithTorch:
    def job(self, **changes: Any) -> ScanJob:
        return cast(make({**PLAIN, "kind": "lstm", "steps": 4, "batch": 3, "hidden": 5, **changes}), torch.float32)

    def test_the_operators_pass_torchs_own_checks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from unrolled.kernels import native_buffers
        from unrolled.kernels.recurrence import native

        for changes in ({}, {"lengths": True, "norm": True, "time_major": True}, {"kind": "gru", "resets": "learned"}):
            inputs = native.operator_inputs(self.job(**changes))
            monkeypatch.setattr(
                native_buffers, "fill_with_nan", False
            )  # the checks compare saved buffers, of which padding is never written
            tests = ["test_schema", "test_faketensor", "test_autograd_registration"]
            tests += [] if "lengths" in changes else ["test_aot_dispatch_dynamic"]
            torch.library.opcheck(torch.ops.unrolled.recurrence.default, (*inputs, True), test_utils=tests)

    def test_compile_in_one_graph(self) -> None:
        layer = unrolled.LSTM(3, 5, backend="native", peephole=True)
        x = torch.randn(4, 2, 3, requires_grad=True)
        with torch._dynamo.config.patch(allow_rnn=True):
            output, _ = torch.compile(layer, fullgraph=True, backend="aot_eager")(x)
        expected, _ = layer(x)
        assert torch.equal(output, expected)
        got = torch.autograd.grad(output.sum(), [x, *layer.parameters()])
        right = torch.autograd.grad(expected.sum(), [x, *layer.parameters()])
        for mine, other in zip(got, right, strict=True):
            assert_close(mine, other)

    def test_twice_through_one_graph(self) -> None:
        job = self.job()
        output, _ = ENGINES["native"].run(job)
        first = torch.autograd.grad(output.sum(), job.x, retain_graph=True)[0]
        other = self.job()  # in between, a run that would overwrite what the first has saved
        ENGINES["native"].run(other)[0].sum().backward()
        assert torch.equal(first, torch.autograd.grad(output.sum(), job.x)[0])

    @pytest.mark.parametrize(
        "changes",
        [
            {},
            {"kind": "lstm", "norm": True, "lengths": True},
            {"kind": "gru", "resets": "learned"},
            {"kind": "rnn", "reverse": True},
        ],
        ids=str,
    )
    def test_second_derivatives_are_the_references(self, changes: dict[str, Any]) -> None:
        found = []
        for engine in ("native", "reference"):
            torch.manual_seed(0)
            job = self.job(**changes)
            assert isinstance(job.cell, BuiltIn)
            leaves = [t for t in (job.x, job.cell.weight_ih, job.cell.weight_hh, *job.state) if t.requires_grad]
            output, final = ENGINES[engine].run(job)
            loss = output.pow(2).sum() + final[-1].sum()
            first = torch.autograd.grad(loss, leaves, create_graph=True)
            second = torch.autograd.grad([g.pow(2).sum() for g in first], leaves)
            found.append([*first, *second])
        assert len(found[0]) >= 6
        for mine, other in zip(*found, strict=True):
            assert_close(mine, other)

    def test_inputs_that_depend_on_each_other(self) -> None:
        """An initial state made from the input: what flows through it is not counted twice."""
        found = []
        for engine in ("native", "reference"):
            job = self.job()
            x = torch.linspace(-1, 1, job.x.numel()).view_as(job.x).requires_grad_()
            state = tuple(x[:, 0, :1].expand_as(s) * 2 for s in job.state)
            output, _ = ENGINES[engine].run(replace(job, x=x, state=state))
            (first,) = torch.autograd.grad(output.pow(3).sum(), x, create_graph=True)
            found += [first, *torch.autograd.grad(first.pow(2).sum(), x)]
        assert_close(found[0], found[2])
        assert_close(found[1], found[3])

    def test_a_trace_has_no_second_derivative_and_says_so(self) -> None:
        *_, trace = ENGINES["native"].run_traced(job := self.job())
        (gradient,) = torch.autograd.grad(trace.output.sum(), job.x, create_graph=True)
        with pytest.raises(UserError, match=r"no second derivative\. Use backend='reference'"):
            torch.autograd.grad(gradient.sum(), job.x)

    def test_autocast_gives_its_dtype(self) -> None:
        layer = unrolled.GRU(3, 5, backend="native", layer_norm=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output, state = layer(torch.randn(4, 2, 3))
        assert output.dtype == state.dtype == torch.bfloat16

    @pytest.mark.parametrize("hidden", [1, 5, 16, 33])
    @pytest.mark.parametrize("ragged", [False, True])
    def test_autocast_is_near(self, hidden: int, ragged: bool) -> None:
        """bfloat16 keeps 8 bits, and an LSTM that is unrolled about as many; whatever its products are computed in."""
        exact, x = (
            unrolled.LSTM(7, hidden, batch_first=True, bidirectional=True, backend="native"),
            torch.randn(9, 40, 7),
        )
        lengths = torch.randint(0, 41, (9,)) if ragged else None
        found = []
        for narrow in (False, True):
            layer = copy.deepcopy(exact)
            read = x.clone().requires_grad_()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=narrow):
                output, (h_n, c_n) = layer(read, lengths=lengths)
            assert output.dtype == (torch.bfloat16 if narrow else torch.float32)
            loss = sum((v.float() * torch.linspace(-1, 1, v.numel()).view(v.shape)).sum() for v in (output, h_n, c_n))
            assert isinstance(loss, Tensor)
            loss.backward()  # type: ignore[no-untyped-call]
            assert read.grad is not None
            gradients = [p.grad.flatten() for p in layer.parameters() if p.grad is not None]
            found.append([output.float().flatten(), read.grad.flatten(), torch.cat(gradients)])
        for what, ours, expected in zip(("output", "input", "weights"), found[1], found[0], strict=True):
            assert (ours - expected).norm() <= 0.02 * expected.norm(), what

    def test_autocast_multiplies_in_bfloat16_where_the_processor_does(self) -> None:
        from unrolled.kernels.native_core import NARROW

        layer, x = unrolled.LSTM(7, 20, backend="native"), torch.randn(5, 3, 7)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            narrow = layer(x)[0]
        assert torch.equal(narrow, layer(x)[0].bfloat16()) != NARROW

    def test_several_python_threads_at_once(self) -> None:
        job = self.job(steps=40, batch=33, hidden=64)
        expected = [v.detach().clone() for v in results(job, "native").values()]
        wrong: list[int] = []

        def work() -> None:
            for _ in range(5):
                got = results(cast(job, torch.float32), "native").values()
                if not all(torch.equal(a, b) for a, b in zip(got, expected, strict=True)):
                    wrong.append(1)

        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert not wrong

    def test_a_forked_child_does_not_hang(self) -> None:
        code = (
            "import os, torch, unrolled, signal\n"
            "layer, x = unrolled.LSTM(64, 64, backend='native'), torch.randn(50, 32, 64)\n"
            "with torch.no_grad(): expected = layer(x)[0]\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    signal.alarm(60)\n"
            "    with torch.no_grad(): output = layer(x)[0]\n"
            "    same = torch.allclose(output[-1], expected[-1], atol=1e-6)  # little: torch itself may hang on more\n"
            "    os._exit(0 if same else 1)\n"
            "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0\n"
        )
        subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


class TestChoice:
    def refusal(self, job: ScanJob) -> str:
        reason: str | None = ENGINES["native"].refuses(job)
        assert reason is not None
        return reason

    def test_what_it_refuses_and_why(self) -> None:
        job = TestWithTorch().job()
        assert isinstance(job.cell, LSTMCell)
        assert self.refusal(cast(job, torch.float64)) == "it computes in float32, got torch.float64"
        softsign = replace(job.cell, activation=torch.nn.functional.softsign)
        assert "usual activations only" in self.refusal(replace(job, cell=softsign))
        assert "on a CPU" in self.refusal(replace(job, x=job.x.to("meta")))
        empty = replace(job, x=job.x[:0], state=tuple(s[:0] for s in job.state))
        assert self.refusal(empty) == "the batch is empty"

        class Own(LSTMCell):
            pass

        own = Own(**{f.name: getattr(job.cell, f.name) for f in fields(job.cell)})
        assert self.refusal(replace(job, cell=own)) == "it has no cell Own"
        mask = torch.ones(3, 5, requires_grad=True)
        assert self.refusal(replace(job, cell=replace(job.cell, hidden_mask=mask))) == "it has no gradient for masks"
        reasons: list[str] = []

        def inside(x: Tensor) -> Tensor:
            reasons.append(self.refusal(replace(job, x=x)))
            return x

        torch.func.vmap(inside)(job.x[None].detach())
        assert "torch.func" in reasons[0]

    def test_asked_by_name_for_what_it_cannot_do(self) -> None:
        job = cast(TestWithTorch().job(), torch.float64)
        with pytest.raises(UserError, match=r"The engine 'native' cannot do this: it computes in float32"):
            choose(job, "native")

    def test_auto_leaves_to_torch_what_it_is_faster_at(self) -> None:
        from unrolled.kernels.native_core import ISA

        if ISA == "plain":
            pytest.skip("the plain kernels leave what they can to torch")
        short, large, alone = torch.zeros(4, 2, 128), torch.zeros(40, 64, 128), torch.zeros(40, 1, 128)
        assert str(unrolled.GRU(128, 8).backend_for(short)) == "torch: not native: torch is faster on so few steps"
        assert unrolled.GRU(128, 8).backend_for(short, lengths=[4, 2]).engine == "native"  # torch would pack and loop
        assert unrolled.LSTM(128, 8).backend_for(short).engine == "native"
        for layer in (unrolled.LSTM(128, 128), unrolled.GRU(128, 128), unrolled.RNN(128, 128)):
            assert layer.backend_for(large).engine == "native"
            assert layer.backend_for(alone).engine == "native"
        with torch.no_grad():
            reason = "not native: torch is faster without gradients on so few sequences"
            assert str(unrolled.LSTM(128, 128).backend_for(alone)) == f"torch: {reason}"
            assert unrolled.LSTM(128, 128).backend_for(large).engine == "native"
            assert unrolled.GRU(128, 128).backend_for(alone).engine == "native"
            assert unrolled.LSTM(128, 128, peephole=True).backend_for(alone).engine == "native"

    def test_not_built(self, monkeypatch: pytest.MonkeyPatch) -> None:
        without = {name: engine for name, engine in ENGINES.items() if name != "native"}
        monkeypatch.setattr("unrolled.kernels.recurrence.scan.ENGINES", without)
        monkeypatch.setitem(kernels.NOT_BUILT, "native", "No module named 'unrolled.kernels._native'")
        with pytest.raises(UserError, match=r"not built in this installation.*Install a C\+\+20 compiler"):
            unrolled.LSTM(3, 4, backend="native")
        assert unrolled.LSTM(3, 4, peephole=True).backend_for(torch.zeros(5, 2, 3)).engine == "reference"

    def test_an_installation_without_it(self) -> None:
        """The extension cannot be imported: everything else works, and `doctor` says why."""
        code = (
            "import sys\n"
            "sys.modules['unrolled.kernels._native'] = None\n"
            "import torch, unrolled\n"
            "from unrolled.kernels import ENGINES, NOT_BUILT\n"
            "from unrolled.cli.doctor import examine\n"
            "assert list(ENGINES) == ['cuda', 'torch', 'reference'], ENGINES\n"
            "unrolled.LSTM(3, 4, peephole=True)(torch.randn(5, 2, 3))[0].sum().backward()\n"
            "unrolled.LSTM(3, 4).stepper()(torch.zeros(1, 3), unrolled.LSTM(3, 4).stepper().initial_state(1))\n"
            "assert 'not built' in examine()['native'], examine()\n"
        )
        warm.python("-c", code, check=True)


def test_scan_traced_reaches_it() -> None:
    job = TestWithTorch().job()
    *_, trace = scan_traced(job.cell, job.x, job.state, backend="native")
    assert set(trace.gates) == {"i", "f", "g", "o"}
