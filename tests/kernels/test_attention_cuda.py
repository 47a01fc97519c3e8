"""The cuda engine of decoders with attention without a GPU: kernels compiled, run on a simulated GPU, and refusals."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.kernels.attention_cuda_cases import CELLS, PLAIN, SCORES, Case, cast, exact, make, results
from tests.kernels.compiled import gpu_report
from tests.kernels.cuda_cases import error
from tests.kernels.pairs import pairwise
from tests.kernels.simulator import OUTCOMES, library
from tests.tolerances import RELATIVE
from unrolled.errors import UserError
from unrolled.kernels.attention import reference
from unrolled.kernels.attention.cuda import engine, ops, programs
from unrolled.kernels.attention.cuda.arguments import INTEGERS, POINTERS, DecoderArguments
from unrolled.kernels.attention.scan import attention_choice
from unrolled.kernels.cuda import launch
from unrolled.kernels.cuda.compiler import Program
from unrolled.kernels.recurrence.cuda.plan import KINDS

needs_gcc = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here")
needs_nvrtc = pytest.mark.skipif(
    importlib.util.find_spec("cuda") is None, reason="cuda-bindings and nvidia-cuda-nvrtc are not installed"
)
TARGETS = ((torch.float16, "sm_90"), (torch.bfloat16, "sm_80"))  # they take turns: each meets every choice


@needs_nvrtc
class TestCompiles:
    def report(self, program: Program, architecture: str) -> list[tuple[str, ...]]:
        return re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill", gpu_report(program, architecture))

    @pytest.mark.parametrize("luong", [False, True])
    @pytest.mark.parametrize("number", range(sum(not kind.norm for kind in KINDS)))
    def test_every_cell(self, number: int, luong: bool) -> None:
        """Nothing is spilt."""
        kind = [kind for kind in KINDS if not kind.norm][number]
        dtype, architecture = TARGETS[(number + luong) % 2]
        count = 2 + 2 * luong + 2 * kind.two_products
        program = programs.decoder_cell(kind, dtype, luong)
        assert self.report(program, architecture) == [("0", "0")] * count

    @pytest.mark.parametrize("additive", [False, True])
    @pytest.mark.parametrize("projected", [False, True])
    def test_every_look(self, projected: bool, additive: bool) -> None:
        """Every two choices meet; the simulator runs the others, too."""
        luong = projected != additive
        dtype, architecture = TARGETS[luong]
        program = programs.look(dtype, luong, additive, projected)
        assert self.report(program, architecture) == [("0", "0")] * (2 + additive)

    @pytest.mark.parametrize("additive", [False, True])
    def test_a_gate(self, additive: bool) -> None:
        dtype, architecture = TARGETS[additive]
        program = programs.look(dtype, False, additive, True, gated=True)
        assert self.report(program, architecture) == [("0", "0")] * (2 + additive)


def test_arguments_have_one_layout() -> None:
    assert ctypes.sizeof(DecoderArguments) == 8 * (len(POINTERS) + len(INTEGERS) + 1)


@functools.cache
def build(program: Program) -> ctypes.CDLL:
    """Compile a program for the simulator."""
    defines = [*program.defines, f'-DKERNEL_SOURCE="{program.source}"']
    return library("attention_simulated_kernel.cpp", programs.sources(), *defines)


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """A function that sets up a simulated GPU; new buffers hold NaN."""
    torch.use_deterministic_algorithms(True)  # fills new memory with NaN

    def run(
        program: Program, name: str, grid: programs.Grid, given: DecoderArguments, device: torch.device, seed: int
    ) -> None:
        outcome = build(program).launch(name.encode(), ctypes.byref(given), grid.blocks, grid.shared_bytes, seed)
        assert outcome == 0, f"{name}: {OUTCOMES[outcome]}"

    def set_up(seed: int = 0) -> None:
        monkeypatch.setattr(launch, "run", partial(run, seed=seed))

    set_up()
    yield set_up
    torch.use_deterministic_algorithms(False)


def check(case: Case) -> dict[str, Tensor]:
    job = make(case)
    found, expected = results(*cast(job, case["dtype"]), engine), exact(job)
    for name, value in found.items():
        assert value.dtype == case["dtype"], name
        assert value.shape == expected[name].shape, name
        assert error(value, expected[name]) <= RELATIVE[case["dtype"]], name
    return found


CHOICES: dict[str, tuple[Any, ...]] = {
    "cell": CELLS,
    "luong": (False, True),
    "score": SCORES,
    "batch": (1, 3),
    "steps": (1, 2, 4),
    "positions": (1, 7, 35),
    "hidden": (8, 16),
    "keys": (8, 24),
    "values": (8, 40),
    "feed": (8, 24),
    "mask": (None, "ragged", "holes", "one"),
    "lengths": (False, True),
    "dropout": (False, True),
    "bias": (True, False),
}


def with_dtype(case: Case) -> Case:
    """A cell's two forms in one dtype each, so that every program is compiled once."""
    return {**case, "dtype": (torch.float16, torch.bfloat16)[(CELLS.index(case["cell"]) + case["luong"]) % 2]}


@needs_gcc
@pytest.mark.usefixtures("simulated")
class TestSimulated:
    @pytest.mark.parametrize(
        "case",
        list(map(with_dtype, pairwise(CHOICES, seed=0))),
        ids=lambda case: "-".join(map(str, case.values())),
    )
    def test_equals_reference(self, case: Case) -> None:
        check(case)

    @pytest.mark.parametrize("score", ["additive", "projected"])
    @pytest.mark.parametrize("cell", ["lstm", "gru_before"])
    def test_a_gate_on_the_context(self, cell: str, score: str) -> None:
        check({**PLAIN, "cell": cell, "score": score, "gate": True, "mask": "holes", "lengths": True, "dropout": True})

    @pytest.mark.parametrize("luong", [False, True])
    def test_widths_that_exceed_a_block(self, luong: bool) -> None:
        """More columns than one warp, and than all threads, read at once."""
        check({**PLAIN, "luong": luong, "keys": 520, "values": 2056, "batch": 1, "steps": 2})

    def test_order_of_threads_changes_nothing(self, simulated: Callable[..., None]) -> None:
        first = check(PLAIN)
        simulated(seed=3)
        again = check(PLAIN)
        assert all(torch.equal(first[name], again[name]) for name in first)

    def test_a_nan_stays_in_its_row(self) -> None:
        job, _ = cast(make(PLAIN), torch.float16)
        keys = job.keys.detach().clone()
        keys[1, 2] = torch.nan
        seen = engine.run(replace(job, keys=keys))
        assert seen.output[1].isnan().all()
        assert not seen.output[[0, 2]].isnan().any()

    def test_scores_of_any_size(self) -> None:
        """Softmax neither overflows nor loses the largest."""
        job, _ = cast(make({**PLAIN, "score": "dot"}), torch.float16)
        job = replace(job, keys=job.keys.detach() * 1e4)
        weights = engine.run(job).weights.detach().float()
        assert weights.isfinite().all()
        assert error(weights.sum(-1), torch.ones(3, 3)) < RELATIVE[torch.float16]

    def test_without_gradients_the_same(self) -> None:
        for cell in ("lstm", "gru_before"):
            case = {**PLAIN, "cell": cell, "luong": True, "mask": "holes", "lengths": True, "dropout": True}
            job, _ = cast(make(case), torch.float16)
            with torch.no_grad():
                plain = engine.run(job)
            for a, b in zip(plain[:3], engine.run(job)[:3], strict=True):
                assert torch.equal(a, b)

    @pytest.mark.parametrize("cell", ["lstm_current", "gru", "gru_before"])
    @pytest.mark.parametrize("luong", [False, True])
    def test_the_operator_is_what_it_says_it_is(self, cell: str, luong: bool) -> None:
        """Its schema, what torch.compile is told of its results, and its derivative."""
        torch.use_deterministic_algorithms(False)
        case = {**PLAIN, "cell": cell, "luong": luong, "steps": 2, "gate": not luong}
        case["score"] = "dot" if luong else "additive"
        inputs = engine.operator_inputs(cast(make(case), torch.float16)[0], torch.float16)
        tests = ("test_schema", "test_faketensor", "test_autograd_registration")
        torch.library.opcheck(ops.attention, (True, *inputs.tensors, *inputs.settings), test_utils=tests)

    @pytest.mark.parametrize("luong", [False, True])
    def test_second_derivatives_are_the_references(self, luong: bool) -> None:
        found = []
        for run, dtype in ((engine.run, torch.float16), (reference.run, torch.float64)):
            job, leaves = cast(make({**PLAIN, "steps": 2, "luong": luong, "gate": not luong}), dtype)
            output = run(job).output.double()
            first = torch.autograd.grad(output.pow(2).sum(), list(leaves.values()), create_graph=True)
            second = torch.autograd.grad([g.double().sum() for g in first], list(leaves.values()))
            found.append(dict(zip(leaves, second, strict=True)))
        for name, expected in found[1].items():
            assert error(found[0][name], expected) <= RELATIVE[torch.float16], name

    def test_a_float32_module_under_autocast(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The result is in autocast's dtype, the gradients in that of the weights."""
        job = make({**PLAIN, "cell": "gru", "luong": True})
        with monkeypatch.context() as patch:
            patch.setattr(torch, "is_autocast_enabled", lambda device: True)
            patch.setattr(torch, "get_autocast_dtype", lambda device: torch.float16)
            found = results(*cast(job, torch.float32), engine)
        torch.set_autocast_enabled(
            "cuda", False
        )  # what was restored after the run is what is_autocast_enabled had said
        for name, expected in exact(job).items():
            assert found[name].dtype == (torch.float32 if name.startswith("gradient") else torch.float16), name
            assert error(found[name], expected) <= RELATIVE[torch.float16], name


class TestChoice:
    def refusal(self, job: Any) -> str:
        reason = engine.refuses_decoder(job)
        assert reason is not None
        return reason

    def test_refused_jobs_have_a_reason(self) -> None:
        job, _ = cast(make(PLAIN), torch.float16)
        assert engine.refuses_decoder(job) is None
        assert engine.refuses(job) == "it runs on an NVIDIA GPU, the input is on cpu"
        inner, score = job.cell.cell, job.cell.score

        def with_cell(**changes: Any) -> Any:
            return replace(job, cell=replace(job.cell, cell=replace(inner, **changes)))  # type: ignore[type-var]

        assert self.refusal(with_cell(norm_hh=torch.ones(64))) == "its decoders have no norm_hh"
        assert self.refusal(with_cell(hidden_mask=torch.ones(3, 16))) == (
            "it has no variational dropout inside the recurrence"
        )
        plain = cast(make({**PLAIN, "cell": "rnn"}), torch.float16)[0]
        assert self.refusal(plain) == "16-bit rounding grows in the decoder of a plain RNN"
        assert "usual activations only" in self.refusal(with_cell(activation=torch.relu))
        several = replace(job, cell=replace(job.cell, score=replace(score, heads=2)))
        assert self.refusal(several) == "it has scores of one head, without an output projection"
        gated: Any = make({**PLAIN, "gate": True}).cell
        hard: Any = replace(gated, hard=True)
        assert self.refusal(replace(job, cell=hard)) == "it draws no positions"
        without: Any = replace(gated, score=replace(score, weight_query=None))
        assert self.refusal(replace(job, cell=without)) == (
            "its gate is part of the query's product, and this score has none"
        )
        drawn = torch.ones(3, 3, 8, requires_grad=True)
        assert self.refusal(replace(job, feed_mask=drawn)) == "it has no gradient for masks"
        assert self.refusal(replace(job, gates_x=job.gates_x[:0], keys=job.keys[:0])) == "the batch is empty"
        assert self.refusal(cast(job, torch.float32)[0]) == (
            "it computes in float16 or bfloat16 (or float32 under autocast to one of them), got torch.float32"
        )
        odd = make({**PLAIN, "hidden": 17})
        assert self.refusal(odd) == "it reads 8 numbers at once, h is 17 wide"
        assert self.refusal(make({**PLAIN, "keys": 12})) == "it reads 8 numbers at once, keys is 12 wide"
        long = make({**PLAIN, "positions": 30_000, "batch": 1})
        assert self.refusal(long) == "30000 positions with keys of 24 and values of 8 do not fit into its shared memory"

    def test_by_name_it_raises(self) -> None:
        job, _ = cast(make(PLAIN), torch.float16)
        with pytest.raises(UserError, match="The engine 'cuda' cannot do this: it runs on an NVIDIA GPU"):
            attention_choice(job, "cuda")
        assert "cuda" not in str(attention_choice(job))  # of another device: not reported

    def test_autocast_decides_the_dtype(self, monkeypatch: pytest.MonkeyPatch) -> None:
        job, _ = cast(make(PLAIN), torch.float32)
        monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: True)
        monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: torch.bfloat16)
        assert engine.refuses_decoder(job) is None
        assert self.refusal(cast(job, torch.float64)[0]) == "it computes in float16 or bfloat16, got torch.float64"
