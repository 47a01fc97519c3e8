"""The cuda engine's kernels as they are, on a simulated GPU, against `reference` in float64."""

from __future__ import annotations

import copy
import ctypes
import functools
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import unrolled
from tests.kernels.cuda_cases import CELLS, Case, cast, error, exact, leaves, make, results
from tests.kernels.pairs import pairwise
from tests.kernels.simulator import OUTCOMES, library
from tests.tolerances import RELATIVE
from unrolled.cells import BuiltIn
from unrolled.errors import UserError
from unrolled.kernels.cuda.compiler import Program
from unrolled.kernels.recurrence import reference
from unrolled.kernels.recurrence.cuda import compiler, constants, launch, ops, products, single_step
from unrolled.kernels.recurrence.cuda import engine as cuda
from unrolled.kernels.recurrence.cuda.arguments import Arguments
from unrolled.kernels.recurrence.cuda.constants import MAX_REGISTER_FRAGMENTS
from unrolled.kernels.recurrence.cuda.plan import (
    BLOCK_UNITS,
    GRU,
    GRU_BEFORE,
    KINDS,
    LSTM,
    LSTM_CURRENT,
    DeviceLimits,
    Kind,
    Pass,
    Plan,
    cluster_bytes,
    make_plan,
    shared_bytes,
)

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here")

CHOICES: dict[str, tuple[Any, ...]] = {
    "cell": CELLS,
    "steps": (1, 2, 5),
    "batch": (1, 3, 11, 40),
    "hidden": (21, 64),
    "multiprocessors": (4, 8, 12),
    "clusters": (False, True),
    "lengths": (False, True),
    "resets": (None, "zero", "learned"),
    "reverse": (False, True),
    "bias": (True, False),
    "time_major": (False, True),
}


@functools.cache
def build(program: Program, held: int = MAX_REGISTER_FRAGMENTS) -> ctypes.CDLL:
    """Compile a program for the simulator, with fewer fragments in registers if `held` is fewer."""
    texts = compiler.sources()
    if held < MAX_REGISTER_FRAGMENTS:
        sizes = {"MAX_REGISTER_FRAGMENTS": held, "REGISTER_FRAGMENTS_WITH_SPILL": held}
        texts["constants.h"] = constants.header(**sizes, MAX_REGISTER_FRAGMENTS_OF_TWO=held + 2)
    return library("cuda_simulated_kernel.cpp", texts, *program.defines, f'-DKERNEL_SOURCE="{program.source}"')


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """A function that sets up a simulated GPU; new buffers hold NaN."""
    torch.use_deterministic_algorithms(True)  # fills new memory with NaN

    def plan(
        kind: Kind, direction: Pass, padded: int, batch: int, share: int, device: torch.device, limits: DeviceLimits
    ) -> Plan | None:
        return make_plan(kind, direction, padded, batch, limits)

    def run(
        program: Program, name: str, how: Plan, given: Arguments, device: torch.device, held: int, seed: int
    ) -> None:
        compiled = build(program, held)
        which, spare = int(name == "backward"), how.shared_bytes
        if name != "single_step":
            spare = compiled.shared_bytes(which, how.chunk_rows, -(-how.group_rows // how.chunk_rows))
        assert spare == how.shared_bytes or held < MAX_REGISTER_FRAGMENTS, (
            "plan.py and the kernels disagree on shared memory"
        )
        outcome = compiled.launch(which, ctypes.byref(given), how.blocks, how.cluster, spare, seed)
        assert outcome == 0, OUTCOMES[outcome]

    def set_up(
        multiprocessors: int = 8,
        held: int = MAX_REGISTER_FRAGMENTS,
        seed: int = 0,
        shared: int = 227 * 1024,
        clusters: bool = False,
    ) -> None:
        limits = DeviceLimits(multiprocessors, shared, ((8, 1), (16, 1)) if clusters else ())
        monkeypatch.setattr(launch, "plan", partial(plan, limits=limits))
        monkeypatch.setattr(launch, "run", launched := partial(run, held=held, seed=seed))

        def ready(program: Program, name: str, how: Plan, device: torch.device) -> Callable[[Arguments], None]:
            return lambda given: launched(program, name, how, given, device)

        monkeypatch.setattr(launch, "ready", ready)

    yield set_up
    torch.use_deterministic_algorithms(False)


def check(case: Case) -> dict[str, torch.Tensor]:
    job = make(case)
    found, expected = results(cast(job, case["dtype"]), cuda), exact(job)
    for name, value in found.items():
        assert value.dtype == case["dtype"], name
        assert error(value, expected[name]) <= RELATIVE[case["dtype"]], name
    return found


@pytest.mark.parametrize("case", list(pairwise(CHOICES, seed=0)), ids=lambda case: "-".join(map(str, case.values())))
def test_equals_reference(case: Case, simulated: Callable[..., None]) -> None:
    """Every kernel is compiled for units that fill two blocks of 32 and for some that do not, in one dtype each."""
    simulated(case["multiprocessors"], seed=1, clusters=case["clusters"])
    check({**case, "dtype": torch.bfloat16 if case["hidden"] == 21 else torch.float16})


PLAIN: Case = {
    "cell": "lstm", "steps": 3, "batch": 11, "hidden": 64, "dtype": torch.float16, "lengths": False, "resets": None,
    "reverse": False, "bias": True, "time_major": False,
}  # fmt: skip


@pytest.mark.parametrize("clusters", [False, True])
def test_a_state_that_is_known_to_be_zero(clusters: bool, simulated: Callable[..., None]) -> None:
    """Nothing is read for it, and nothing said of it."""
    simulated(clusters=clusters)
    job = cast(make(PLAIN), torch.float16)
    zeros = replace(job, state=tuple(torch.zeros_like(s) for s in job.state))
    expected = cuda.run(zeros)
    assert isinstance(job.cell, BuiltIn)
    weight = job.cell.weight_hh
    fresh = cuda.run(replace(zeros, fresh=True))
    assert torch.equal(fresh[0], expected[0])
    assert all(torch.equal(a, b) for a, b in zip(fresh[1], expected[1], strict=True))
    first, second = (torch.autograd.grad(result[0].float().sum(), weight)[0] for result in (fresh, expected))
    assert torch.equal(first, second)


@pytest.mark.parametrize("cell", ["lstm", "gru", "gru_before", "rnn"])
def test_matrices_whose_rows_are_filled_up(
    cell: str, simulated: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of 34 units, 6 inputs, 102 gates are no multiples of 16 bytes: cuBLAS is given larger ones."""
    simulated()
    mm = torch.mm
    case = {**PLAIN, "cell": cell, "hidden": 34}
    plain = check(case)
    asked: list[Tensor] = []

    def recorded(a: Tensor, b: Tensor, **options: Any) -> Tensor:
        asked.extend((a, b))
        return mm(a, b, **options)

    monkeypatch.setattr(products, "MIN_EAGER", 0)
    monkeypatch.setattr(torch, "mm", recorded)
    found = check(case)
    assert asked
    assert all(matrix.stride(dim) % 8 == 0 for matrix in asked for dim in range(2) if matrix.stride(dim) > 1)
    assert all(found[name].shape == plain[name].shape for name in plain)
    assert all(found[f"gradient of {name}"].is_contiguous() for name in ("weight_ih", "weight_hh"))


def test_order_of_threads_changes_nothing(simulated: Callable[..., None]) -> None:
    simulated(seed=2)
    first = check(PLAIN)
    simulated(seed=3)
    again = check(PLAIN)
    assert all(torch.equal(first[name], again[name]) for name in first)


@pytest.mark.parametrize("cell", ["lstm", "gru", "gru_before"])
def test_weights_that_registers_do_not_hold(cell: str, simulated: Callable[..., None]) -> None:
    simulated(held=1)
    check({**PLAIN, "cell": cell, "steps": 2})


def test_more_blocks_of_columns_than_warps(simulated: Callable[..., None]) -> None:
    """300 units are ten blocks of 32 columns: two warps have two, the others one."""
    simulated(20)
    check({**PLAIN, "cell": "rnn", "hidden": 300, "steps": 2})


def test_a_batch_that_takes_several_launches(simulated: Callable[..., None]) -> None:
    for direction in ("forward", "backward"):
        plan = make_plan(KINDS[LSTM], direction, 64, 100, DeviceLimits(4, 20_000))
        assert plan is not None
        assert plan.rows < 100
    simulated(4, shared=20_000)
    check({**PLAIN, "batch": 100, "steps": 2, "lengths": True, "resets": "learned"})


def test_a_nan_stays_one_and_nobody_waits_for_it(simulated: Callable[..., None]) -> None:
    simulated()
    job = cast(make(PLAIN), torch.float16)
    with torch.no_grad():
        job.state[0][2] = torch.nan
        job.state[0].view(torch.int16)[3] = -1  # the NaN of words that have not come
        output, _ = cuda.run(job)
    assert output[2:4].isnan().all()
    assert not output[4:].isnan().any()


@pytest.mark.parametrize("cell", ["lstm_current", "lstm_norm", "gru", "gru_before"])
def test_the_operator_is_what_it_says_it_is(cell: str, simulated: Callable[..., None]) -> None:
    """Its schema, what torch.compile is told of its results, and its derivative."""
    simulated()
    job = cast(
        make({**PLAIN, "cell": cell, "steps": 2, "batch": 3, "resets": "learned", "lengths": True}), torch.float16
    )
    calls: list[tuple[Any, ...]] = []

    def record(operator: Any, *arguments: Any) -> Any:
        calls.append(arguments)
        return operator(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ops, "recurrence", partial(record, operator := ops.recurrence))
        patch.setattr(torch.compiler, "is_compiling", lambda: True)
        cuda.run(job)
    arguments = [a.detach().requires_grad_(a.is_floating_point()) if isinstance(a, Tensor) else a for a in calls[0]]
    torch.library.opcheck(
        operator, tuple(arguments), test_utils=("test_schema", "test_faketensor", "test_autograd_registration")
    )


@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell != "lstm_norm"])
def test_second_derivatives_are_the_references(cell: str, simulated: Callable[..., None]) -> None:
    simulated()
    changes = {"steps": 3, "batch": 2, "cell": cell, "resets": "learned", "lengths": True}
    found = []
    for engine, dtype in ((cuda, torch.float16), (reference, torch.float64)):
        job = cast(make({**PLAIN, **changes}), dtype)
        wanted = leaves(job)
        output, final = engine.run(job)
        loss = output.double().pow(2).sum() + final[-1].double().sum()
        first = torch.autograd.grad(loss, list(wanted.values()), create_graph=True)
        second = torch.autograd.grad([g.double().sum() for g in first], list(wanted.values()))
        found.append(dict(zip(wanted, second, strict=True)))
    for name, expected in found[1].items():
        assert error(found[0][name], expected) <= RELATIVE[torch.float16], name


def test_no_second_derivative(simulated: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator, for torch.compile: an error, and never a silent zero."""
    simulated()
    job = cast(make({**PLAIN, "steps": 2, "batch": 2, "cell": "lstm_current", "resets": "learned"}), torch.float16)
    wanted = leaves(job)
    refused = r"The cuda engine has no second derivative\. Use backend='reference'"
    with monkeypatch.context() as patch:
        patch.setattr(torch.compiler, "is_compiling", lambda: True)
        output = cuda.run(job)[0]
    first = torch.autograd.grad(output.float().sum(), list(wanted.values()), create_graph=True)
    for leaf in wanted.values():
        with pytest.raises(UserError, match=refused):
            torch.autograd.grad(first[0].float().sum(), leaf, retain_graph=True)


def test_a_float32_module_under_autocast(simulated: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is in autocast's dtype, the gradients in that of the weights."""
    simulated()
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: True)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: torch.float16)
    job = make({**PLAIN, "steps": 2})
    found = results(cast(job, torch.float32), cuda)
    monkeypatch.undo()
    torch.set_autocast_enabled("cuda", False)  # what was restored after the run is what is_autocast_enabled had said
    expected = exact(job)
    assert found["output"].dtype == found["final 1"].dtype == torch.float16
    for name, value in found.items():
        if name.startswith("gradient"):
            assert value.dtype == torch.float32
        assert error(value, expected[name]) <= RELATIVE[torch.float16], name


@pytest.mark.parametrize("other", [torch.bfloat16, torch.float32], ids=str)
def test_biases_in_another_dtype(other: torch.dtype, simulated: Callable[..., None]) -> None:
    """As under autocast: one of them, or both."""
    simulated()
    job = cast(make(PLAIN), torch.float16)
    assert isinstance(job.cell, BuiltIn)
    bias_ih, bias_hh = job.cell.bias_ih, job.cell.bias_hh
    assert bias_ih is not None
    assert bias_hh is not None
    for first in (bias_ih, bias_ih.to(other)):
        mixed = replace(job, cell=replace(job.cell, bias_ih=first, bias_hh=bias_hh.to(other)))
        with torch.no_grad():
            found, expected = cuda.run(mixed)[0], reference.run(cast(mixed, torch.float64))[0]
        assert error(found, expected) <= RELATIVE[torch.float16]


@pytest.mark.parametrize("units", BLOCK_UNITS)
@pytest.mark.parametrize("kind", [KINDS[LSTM_CURRENT], KINDS[GRU_BEFORE]], ids=lambda kind: kind.name)
def test_plans_lay_out_shared_memory_as_the_kernels_do(kind: Kind, units: int) -> None:
    compiled = build(compiler.recurrence(kind, 64, torch.float16, units))
    assert compiled.shared_bytes(0, 16, 3) == shared_bytes(kind, "forward", 64, units, 16, 3)
    assert compiled.shared_bytes(1, 16, 3) == shared_bytes(kind, "backward", 64, units, 16, 3)


@pytest.mark.parametrize("hidden", [65, 128])
def test_norms_over_several_blocks(hidden: int, simulated: Callable[..., None]) -> None:
    """Of a group whose rows take two chunks; a norm counts no unit that fills up."""
    for seed in (8, 9):
        simulated(8, seed=seed)
        check({**PLAIN, "cell": "lstm_norm", "hidden": hidden, "batch": 35, "lengths": True, "resets": "learned"})


@pytest.mark.parametrize(
    ("cell", "hidden"), [("rnn", 256), ("lstm_current", 100), ("lstm", 256), ("gru", 192), ("gru_before", 192)]
)
def test_clusters_of_several_blocks(cell: str, hidden: int, simulated: Callable[..., None]) -> None:
    for seed in (4, 5):
        simulated(clusters=True, seed=seed)
        check({**PLAIN, "cell": cell, "hidden": hidden, "lengths": True, "resets": "learned"})


@pytest.mark.parametrize(
    ("cell", "hidden", "batch", "beside"),
    [("lstm_current", 320, 7, False), ("gru", 300, 11, True), ("gru_before", 300, 11, True)],
)
def test_clusters_of_more_than_eight_blocks(
    cell: str, hidden: int, batch: int, beside: bool, simulated: Callable[..., None]
) -> None:
    """One at a time here, which has eight rows; three more find room beside it."""
    for direction in ("forward", "backward"):
        kind = KINDS[{"gru": GRU, "gru_before": GRU_BEFORE, "lstm_current": LSTM_CURRENT}[cell]]
        plan = make_plan(kind, direction, 320, batch, DeviceLimits(20, 227 * 1024, ((16, 1),)))
        assert plan is not None
        assert plan.in_cluster
        assert (plan.rest is not None) == beside
    simulated(20, clusters=True, seed=7)
    check({**PLAIN, "cell": cell, "hidden": hidden, "batch": batch, "lengths": True, "resets": "learned"})


@pytest.mark.parametrize("units", BLOCK_UNITS)
@pytest.mark.parametrize("kind", [KINDS[LSTM_CURRENT], KINDS[GRU], KINDS[GRU_BEFORE]], ids=lambda kind: kind.name)
def test_plans_lay_out_the_shared_memory_of_clusters_as_the_kernels_do(kind: Kind, units: int) -> None:
    compiled = build(compiler.recurrence(kind, 128, torch.float16, units, in_cluster=True))
    assert compiled.shared_bytes(0, 8, 1) == cluster_bytes(kind, "forward", 128, units)
    assert compiled.shared_bytes(1, 8, 1) == cluster_bytes(kind, "backward", 128, units)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell not in ("gru_before", "lstm_norm")])
def test_a_single_step(cell: str, dtype: torch.dtype, simulated: Callable[..., None]) -> None:
    """Of sizes that are no multiples of a warp's; the input has 8 numbers, as many as are read at once."""
    simulated()
    job = make({**PLAIN, "cell": cell, "steps": 1, "batch": 3, "hidden": 40, "dtype": dtype, "bias": cell != "relu"})
    assert isinstance(job.cell, BuiltIn)
    x, weight = (torch.nn.functional.pad(t, (0, 2)) for t in (job.x, job.cell.weight_ih))
    widened = replace(job.cell, weight_ih=weight)
    with torch.no_grad():
        found, expected = cuda.step(replace(job, x=x, cell=widened)), reference.run(cast(job, torch.float64))[1]
    assert single_step.step(widened, cuda.kind_of(widened), x[:, 0], job.state) is not None
    for value, wanted in zip(found, expected, strict=True):
        assert value.dtype == dtype
        assert error(value, wanted) <= RELATIVE[dtype]


def test_a_single_step_that_only_the_other_kernels_do(simulated: Callable[..., None]) -> None:
    simulated()
    job = make({**PLAIN, "steps": 1})  # an input of 6 numbers
    with torch.no_grad():
        (h, _), (expected, _) = cuda.step(job), reference.run(cast(job, torch.float64))[1]
    assert error(h, expected) <= RELATIVE[torch.float16]


def test_a_stream_of_several_layers(simulated: Callable[..., None]) -> None:
    """Step by step as over the whole sequence, from a given state, and on from one that was read."""
    simulated()
    torch.manual_seed(0)
    layer = unrolled.LSTM(8, 16, num_layers=2, dtype=torch.float16)
    cells = layer.stepper()._cells
    frames, initial = torch.randn(5, 3, 8), tuple(torch.randn(3, 2, 16) for _ in range(2))
    exact = copy.deepcopy(layer).double()
    with torch.no_grad():
        expected, finals = exact(frames.double(), tuple(s.transpose(0, 1).double() for s in initial))
    stream = cuda.stream(cells, 3, initial)
    assert stream is not None
    outputs = [stream.feed(frame) for frame in frames[:2]]
    kept = stream.state
    stream.feed(frames[3])
    stream.state = kept
    outputs += [stream.feed(frame.half()) for frame in frames[2:]]
    assert error(torch.stack(outputs), expected) <= RELATIVE[torch.float16]
    for found, wanted in zip(stream.state, finals, strict=True):
        assert error(found.transpose(0, 1), wanted) <= RELATIVE[torch.float16]
    assert cuda.stream(cells, 9, tuple(torch.zeros(9, 2, 16) for _ in range(2))) is None
