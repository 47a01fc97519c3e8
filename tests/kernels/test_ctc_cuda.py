"""The CTC kernels without a GPU: compiled by NVRTC, and run as they are on a simulated GPU against `reference`."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import re
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tests.kernels.compiled import gpu_report
from tests.kernels.ctc_cases import PLAIN, Case, draw, expected, found
from tests.kernels.pairs import pairwise
from tests.kernels.simulator import OUTCOMES, library
from tests.tolerances import assert_close
from unrolled.errors import UserError
from unrolled.kernels.ctc import reference
from unrolled.kernels.ctc.alignment import align
from unrolled.kernels.ctc.cuda import constants, engine, plan
from unrolled.kernels.ctc.cuda.arguments import INTEGERS, POINTERS, CTCArguments
from unrolled.kernels.cuda import compiler, launch
from unrolled.kernels.cuda.compiler import Program
from unrolled.kernels.cuda.launch import IndependentBlocks
from unrolled.nn import ctc

needs_nvrtc = pytest.mark.skipif(
    importlib.util.find_spec("cuda") is None, reason="cuda-bindings and nvidia-cuda-nvrtc are not installed"
)
needs_gcc = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here")
LATTICES = tuple(pairs * constants.THREADS - 1 for pairs in plan.CHUNKS)  # the longest target of each program


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize(("source", "kernels"), [("loss.cu", 2), ("align.cu", 1)])
def test_every_kernel_compiles_and_stays_in_registers(source: str, kernels: int, architecture: str) -> None:
    """For the longest targets, at which most registers are in use; the simulator runs every size."""
    longest = LATTICES[-1]
    log = gpu_report(plan.program(source, longest), architecture)
    assert re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill", log) == [("0", "0")] * kernels


def test_kernels_and_python_share_their_constants() -> None:
    names = re.findall(r"constexpr int (\w+) =", constants.header())
    assert {"WARPS", "NOTHING", "HEAD"} <= set(names)
    for text in (text for name, text in plan.sources().items() if name != "constants.h"):
        assert not re.search(rf"\b(?:{'|'.join(names)}) = ", text)
    assert ctypes.sizeof(CTCArguments) == 8 * (len(POINTERS) + len(INTEGERS))


@functools.cache
def build(program: Program) -> ctypes.CDLL:
    """Compile a program for the simulator."""
    defines = [*program.defines, f'-DKERNEL_SOURCE="{program.source}"']
    defines += ["-DOF_LOSS"] if program.source == "loss.cu" else []
    return library("ctc_simulated_kernel.cpp", plan.sources(), *defines)


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """A function that sets up a simulated GPU with an order of threads; new buffers hold NaN."""
    torch.use_deterministic_algorithms(True)  # fills new memory

    def set_up(seed: int) -> None:
        def run(program: Program, name: str, how: IndependentBlocks, given: CTCArguments, device: torch.device) -> None:
            kernel: Any = getattr(build(program), f"launch_{name}")
            outcome = kernel(ctypes.byref(given), how.blocks, how.shared_bytes, seed)
            assert outcome == 0, OUTCOMES[outcome]

        monkeypatch.setattr(launch, "run", run)

    set_up(0)
    yield set_up
    torch.use_deterministic_algorithms(False)


def check(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    return check_job(draw(case))


def check_job(job: engine.CTCBatch) -> tuple[torch.Tensor, torch.Tensor]:
    (losses, gradient), (right, right_gradient) = found(job), expected(job)
    finite = right.isfinite()
    assert torch.equal(losses.isinf(), right.isinf())
    assert_close(losses[finite], right[finite].float())
    assert_close(gradient, right_gradient.float())
    with torch.no_grad():
        assert torch.equal(engine.losses(job), losses)  # α alone
    return losses, gradient


CHOICES: dict[str, tuple[Any, ...]] = {
    "batch": (1, 5),
    "steps": (1, 2, 8, 9, 37),
    "labels": (2, 3, 8, 33),
    "longest": (1, 5, 30, 126, 127, 300),
    "scale": (0.1, 1.0, 5.0, 50.0),
    "blank": (0, 1),
    "flat": (False, True),
    "time_major": (False, True),
    "zeros": (False, True),
}


@needs_gcc
@pytest.mark.parametrize("case", list(pairwise(CHOICES, seed=0)), ids=lambda case: "-".join(map(str, case.values())))
def test_equals_reference(case: Case, simulated: Callable[[int], None]) -> None:
    check(case)


@needs_gcc
@pytest.mark.parametrize("longest", LATTICES)
def test_targets_of_every_size_of_lattice(longest: int, simulated: Callable[[int], None]) -> None:
    """Short targets of every kind; then a short one beside one that fills all threads and ends within a chunk."""
    job = draw({**PLAIN, "batch": 5, "steps": 40, "longest": 30, "labels": 11})
    targets = torch.nn.functional.pad(job.targets, (0, longest - 30), value=-7)
    check_job(job._replace(targets=targets, longest=longest))
    steps = longest + 13
    log_probs = torch.nn.functional.pad(job.log_probs[:2], (0, 0, 0, steps - 40), value=torch.nan)
    log_probs[1] = torch.randn(steps, 11).log_softmax(-1)
    targets[1] = torch.arange(longest) % 10 + 1
    job = job._replace(log_probs=log_probs, targets=targets[:2], longest=longest)
    job = job._replace(input_lengths=job.input_lengths[:2], target_lengths=job.target_lengths[:2])
    job.input_lengths[1], job.target_lengths[1] = steps, longest
    check_job(job)


@needs_gcc
def test_order_of_threads_changes_nothing(simulated: Callable[[int], None]) -> None:
    """Warps run at unequal speeds, by a seed."""
    case = {**PLAIN, "batch": 5, "steps": 90, "longest": 80}
    first = check(case)
    for seed in range(1, 12):
        simulated(seed)
        assert all(torch.equal(a, b) for a, b in zip(first, found(draw(case)), strict=True))


@needs_gcc
def test_improbable_paths_do_not_underflow(simulated: Callable[[int], None]) -> None:
    """The targets are thousands of nats from what the frames say: far below float64's smallest number."""
    job = draw({**PLAIN, "batch": 1, "steps": 100})
    log_probs = torch.full((1, 100, 7), -100.0)
    log_probs[..., 6] = 0.0
    job = job._replace(
        log_probs=log_probs, targets=torch.tensor([[1, 2, 2]]), input_lengths=torch.tensor([100]),
        target_lengths=torch.tensor([3]),
    )  # fmt: skip
    (losses, gradient), (right, right_gradient) = found(job), expected(job)
    assert losses > 9000
    assert_close(losses, right.float())
    assert_close(gradient, right_gradient.float())


@needs_gcc
def test_wrong_numbers_make_their_loss_nan_and_no_gradient(simulated: Callable[[int], None]) -> None:
    """Nobody has read them before: other sequences stay right, and no memory outside is touched."""
    job = draw({**PLAIN, "batch": 9, "steps": 12, "longest": 4})
    job = job._replace(
        log_probs=torch.randn(9, 12, 7).log_softmax(-1),
        targets=torch.randint(1, 7, (9, 4)),
        input_lengths=torch.full((9,), 12),
        target_lengths=torch.full((9,), 3),
    )
    job.targets[0, 1], job.targets[1, 2], job.targets[2, 0] = 0, 7, -1  # the blank, and none
    job.targets[8, 3] = 99  # in the padding
    job.input_lengths[3], job.input_lengths[4] = 13, -1
    job.target_lengths[5], job.target_lengths[6] = 5, -2
    job.log_probs[7, 11, 0] = torch.nan
    losses, gradient = found(job)
    assert losses.isnan().tolist() == [True] * 8 + [False]
    assert (gradient[:8] == 0).all()
    assert (gradient[8] != 0).any()


@needs_gcc
def test_the_operator_is_what_it_says_it_is(simulated: Callable[[int], None]) -> None:
    job = draw({**PLAIN, "flat": True})
    job.log_probs.requires_grad_()
    torch.library.opcheck(
        engine.ctc.forward,
        (*job, True),
        test_utils=("test_schema", "test_faketensor", "test_autograd_registration"),
    )


@needs_gcc
@pytest.mark.parametrize("flat", [True, False])
def test_second_derivatives_are_the_references(flat: bool, simulated: Callable[[int], None]) -> None:
    job = draw({**PLAIN, "flat": flat})
    log_probs = job.log_probs.requires_grad_()
    offsets = job.offsets if job.offsets is not None else torch.arange(len(log_probs)) * job.targets.shape[1]
    same = reference.CTCJob(
        log_probs, job.targets.reshape(-1), offsets, job.input_lengths, job.target_lengths, job.blank
    )
    found = []
    for losses in (engine.losses(job), reference.losses(same).float()):
        kept = torch.where(losses.isfinite(), losses, 0.0)
        (first,) = torch.autograd.grad(kept.pow(2).sum(), log_probs, create_graph=True)
        found += [first, *torch.autograd.grad(first.pow(2).sum(), log_probs)]
    assert_close(found[0], found[2])
    assert_close(found[1], found[3])


@needs_gcc
@pytest.mark.parametrize("longest", [3, 40, 200])
@pytest.mark.parametrize("steps", [1, 8, 60, 90])
def test_alignments_are_the_references(longest: int, steps: int, simulated: Callable[[int], None]) -> None:
    job = draw({**PLAIN, "batch": 5, "steps": steps, "longest": longest, "labels": 30})
    scores, paths = engine.align(job)
    for row in range(5):
        frames, length = int(job.input_lengths[row]), int(job.target_lengths[row])
        frame_scores, target = job.log_probs[row, :frames].double(), job.targets[row, :length]
        score, path = align(frame_scores.tolist(), target.tolist(), job.blank)
        assert scores[row].item() == pytest.approx(score, rel=1e-12)
        if score > -torch.inf:
            assert paths[row, :frames].tolist() == path


@pytest.fixture
def simulated_door(simulated: Callable[[int], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """The layers' functions take a tensor on the CPU for one on a GPU, and nothing may be read from it."""
    monkeypatch.setattr(engine, "refuses", lambda log_probs, longest: None)
    monkeypatch.setattr(ctc, "_on_gpu", lambda value: isinstance(value, torch.Tensor))


@needs_gcc
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("flat", [False, True])
def test_the_loss_of_the_layers_takes_it(reduction: str, flat: bool, simulated_door: None) -> None:
    job = draw({**PLAIN, "batch": 5, "flat": flat})
    given = (job.targets.int(), job.input_lengths.int(), job.target_lengths.int())
    mine, plain = (job.log_probs.detach().clone().requires_grad_() for _ in range(2))
    ours = ctc.ctc_loss(mine, *given, reduction=reduction, zero_infinity=True, backend="cuda")
    lengths = (job.input_lengths, job.target_lengths.tolist())
    rows = job.targets if flat else job.targets.clamp(min=1)
    expected_loss = ctc.ctc_loss(plain, rows, *lengths, reduction=reduction, zero_infinity=True, backend="reference")
    assert_close(ours, expected_loss)
    (gradient,), (right,) = torch.autograd.grad(ours.sum(), mine), torch.autograd.grad(expected_loss.sum(), plain)
    assert_close(gradient, right)


@needs_gcc
@pytest.mark.parametrize("where", ["list", "lengths on the CPU", "one sequence"])
def test_targets_come_from_anywhere(where: str, simulated_door: None, monkeypatch: pytest.MonkeyPatch) -> None:
    log_probs, targets = torch.randn(2, 12, 5).log_softmax(-1), torch.tensor([[1, 2, 2], [4, 3, 1]])
    right = ctc.ctc_loss(log_probs, targets, [12, 9], [3, 2], reduction="none", backend="reference")
    if where == "list":
        monkeypatch.setattr(ctc, "_on_gpu", lambda value: False)
        loss = ctc.ctc_loss(log_probs, [[1, 2, 2], [4, 3]], [12, 9], reduction="none", backend="cuda")
    elif where == "lengths on the CPU":
        loss = ctc.ctc_loss(log_probs, targets, [12, 9], [3, 2], reduction="none", backend="cuda")
    else:
        loss = ctc.ctc_loss(log_probs[1, :9], targets[1, :2], reduction="none", backend="cuda")
        right = right[1]
    assert_close(loss, right)


@needs_gcc
def test_the_alignment_of_the_layers_takes_it(simulated_door: None) -> None:
    log_probs, target = torch.randn(30, 6).log_softmax(-1), [1, 1, 5, 2]
    ours, right = (ctc.ctc_align(log_probs, target, backend=name) for name in ("cuda", "reference"))
    assert (ours.path, ours.spans) == (right.path, right.spans)
    assert ours.log_prob == pytest.approx(right.log_prob)
    with pytest.raises(UserError, match="No path of 3 frames reads as the target of 4 labels"):
        ctc.ctc_align(log_probs[:3], target, backend="cuda")
    log_probs[2] = torch.nan
    with pytest.raises(UserError, match=r"log_probs\[0, 2, 0\] is nan"):
        ctc.ctc_align(log_probs, target, backend="cuda")


def test_refusals_have_a_reason() -> None:
    assert engine.refuses(torch.zeros(1, 2, 3), 1) == "it runs on an NVIDIA GPU, the input is on cpu"
    on_gpu = torch.zeros(1, 2, 3, device="meta")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "DEVICE", "meta")
        assert engine.refuses(on_gpu.double(), 1) == "it computes in float32, got torch.float64"
        assert engine.refuses(on_gpu, 2048) == "it has up to 2047 labels in a target, got 2048"
        patch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
        patch.setattr(compiler, "missing", lambda: None)
        reason = "it needs a GPU of compute capability 8.0 or newer, this one has 7.5"
        assert engine.refuses(on_gpu, 1) == reason
        patch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
        assert engine.refuses(on_gpu, 2047) is None
