"""The native engine against `reference` in float64: outputs, final states and every gradient."""

from __future__ import annotations

import zlib
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests import warm
from tests.kernels.pairs import pairwise
from tests.tolerances import assert_close
from unrolled.cells import BuiltIn, GRUCell, LSTMCell, RNNCell
from unrolled.kernels import ENGINES, ScanJob, make_job, scan

pytestmark = [
    pytest.mark.skipif("native" not in ENGINES, reason="the native engine is not built here"),
    pytest.mark.usefixtures("nan_buffers"),
]

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


CASES = list(pairwise(CHOICES, seed=0))


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_equals_reference(case: dict[str, Any]) -> None:
    compare(make(case))


PLAIN = {name: values[0] for name, values in CHOICES.items()}


def small(**changes: Any) -> ScanJob:
    """A small LSTM's job in float32."""
    return cast(make({**PLAIN, "kind": "lstm", "steps": 4, "batch": 3, "hidden": 5, **changes}), torch.float32)


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


@pytest.mark.parametrize("isa", ["plain", "avx2", "avx512", "neon", "neon_dot"])
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
    run = warm.python("-c", "from unrolled.kernels import ENGINES", env={"UNROLLED_ISA": "avx1024"})
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
