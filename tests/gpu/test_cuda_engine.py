"""The cuda engine on a GPU against `reference` in float64, and beside cuDNN. Skipped where there is no GPU."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import unrolled
from tests.kernels.cuda_cases import CELLS, Case, cast, error, exact, make, results
from tests.kernels.pairs import pairwise
from tests.tolerances import RELATIVE
from unrolled.cells import BuiltIn
from unrolled.errors import UserError
from unrolled.kernels import ENGINES, choose
from unrolled.kernels.recurrence.cuda import compiler, launch
from unrolled.kernels.recurrence.cuda import engine as cuda
from unrolled.kernels.recurrence.cuda.arguments import Arguments
from unrolled.kernels.recurrence.cuda.plan import KINDS, LSTM, Plan

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")

CHOICES: dict[str, tuple[Any, ...]] = {
    "cell": CELLS,
    "steps": (1, 2, 63, 100, 1000),
    "batch": (1, 3, 16, 64, 200),
    "hidden": (1, 17, 64, 128, 200, 256, 512, 650, 1024, 1500),
    "dtype": (torch.float16, torch.bfloat16),
    "lengths": (False, True),
    "resets": (None, "zero", "learned"),
    "reverse": (False, True),
    "bias": (True, False),
    "time_major": (False, True),
}
CASES = [*pairwise(CHOICES, seed=0), *pairwise(CHOICES, seed=1)]  # about 150


@pytest.fixture(autouse=True)
def poisoned() -> Iterator[None]:
    """New memory holds NaN, so that what was not written is seen."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def torchs(case: Case) -> dict[str, Tensor] | None:
    """The same from cuDNN in the same dtype, where it computes the case."""
    job = make(case, "cuda")
    if ENGINES["torch"].refuses(job) is not None:
        return None
    return results(cast(job, case["dtype"]), ENGINES["torch"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_equals_reference(case: Case) -> None:
    """Within the dtype's tolerance; where that is exceeded, no further off than others at the same dtype.

    Others are cuDNN or, if it does not compute the case, `reference`.
    """
    job = make(case, "cuda")
    found, expected = results(cast(job, case["dtype"]), ENGINES["cuda"]), exact(job)
    too_far = {}
    for name, value in found.items():
        assert value.dtype == case["dtype"], name
        assert value.isfinite().all(), name
        if (off := error(value, expected[name])) > RELATIVE[case["dtype"]]:
            too_far[name] = off
    if not too_far:
        return
    theirs = torchs(case) or results(cast(job, case["dtype"]), ENGINES["reference"])
    for name, off in too_far.items():
        assert off <= error(theirs[name], expected[name]), name


@pytest.mark.parametrize("hidden", [17, 64])
@pytest.mark.parametrize("cell", CELLS)
def test_small(cell: str, hidden: int) -> None:
    """Small enough for compute-sanitizer, which makes everything slow (`make sanitize-gpu`)."""
    test_equals_reference({**PLAIN, "cell": cell, "hidden": hidden, "batch": 11, "steps": 4})


@pytest.mark.parametrize("cell", ["lstm", "gru", "gru_before"])
def test_small_without_clusters(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For racecheck, to which words of shared memory that are their own flags are races."""
    whole = launch.limits(torch.device("cuda:0"))
    launch.plan.cache_clear()
    monkeypatch.setattr(launch, "limits", lambda device: replace(whole, clusters=()))
    test_equals_reference({**PLAIN, "cell": cell, "hidden": 64, "batch": 11, "steps": 4})
    launch.plan.cache_clear()


@pytest.mark.parametrize("hidden", [128, 650, 1024])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_error_is_no_larger_than_cudnns(cell: str, hidden: int) -> None:
    """Of the output and of every gradient, summed up: one of them may be a little worse by chance."""
    case = {**PLAIN, "cell": cell, "hidden": hidden, "batch": 32, "steps": 64, "lengths": False, "resets": None}
    job = make(case, "cuda")
    expected, theirs = exact(job), torchs(case)
    assert theirs is not None
    ours = results(cast(job, torch.float16), ENGINES["cuda"])
    assert sum(error(ours[n], expected[n]) for n in ours) <= sum(error(theirs[n], expected[n]) for n in theirs)


PLAIN: Case = {
    "cell": "lstm", "steps": 50, "batch": 64, "hidden": 512, "dtype": torch.float16, "lengths": True,
    "resets": "learned", "reverse": False, "bias": True, "time_major": True,
}  # fmt: skip


@pytest.mark.parametrize("cell", CELLS)
def test_ten_repeats_are_bit_identical(cell: str) -> None:
    job = make({**PLAIN, "cell": cell}, "cuda")
    first = results(cast(job, torch.float16), ENGINES["cuda"])
    for _ in range(10):
        again = results(cast(job, torch.float16), ENGINES["cuda"])
        assert all(torch.equal(first[name], again[name]) for name in first)


def test_several_streams() -> None:
    """Launches that wait for each other's blocks must not stop each other."""
    jobs = [cast(make({**PLAIN, "hidden": hidden}, "cuda"), torch.float16) for hidden in (1024, 512, 256, 1024)]
    expected = [results(job, ENGINES["cuda"])["output"] for job in jobs]
    streams = [torch.cuda.Stream() for _ in jobs]  # type: ignore[no-untyped-call]  # torch's
    torch.cuda.synchronize()
    found = []
    for _ in range(5):
        for stream, job in zip(streams, jobs, strict=True):
            with torch.cuda.stream(stream):
                found.append(ENGINES["cuda"].run(job)[0])
    torch.cuda.synchronize()
    assert all(torch.equal(f, e) for f, e in zip(found, expected * 5, strict=True))


@pytest.mark.parametrize(("hidden", "batch"), [(512, 64), (512, 32), (256, 64)])
def test_jobs_side_by_side(hidden: int, batch: int) -> None:
    """Each has a part of the GPU, as both directions of a layer have; gradients come back from every stream."""
    sizes = {"hidden": hidden, "batch": batch}
    jobs = [cast(make({**PLAIN, **sizes, "reverse": reverse}, "cuda"), torch.float16) for reverse in (False, True)]
    expected = [cuda.run(job, share=2) for job in jobs]  # one after the other
    found = cuda.run_together(jobs)
    for (output, state), (wanted, wanted_state), job in zip(found, expected, jobs, strict=True):
        assert torch.equal(output, wanted)
        assert all(torch.equal(s, w) for s, w in zip(state, wanted_state, strict=True))
        assert isinstance(job.cell, BuiltIn)
        for of in (job.x, job.cell.weight_hh):
            given = [torch.autograd.grad(y.float().sum(), of, retain_graph=True)[0] for y in (output, wanted)]
            assert error(given[0], given[1]) < RELATIVE[torch.float16]


@pytest.mark.parametrize(("hidden", "batch"), [(256, 8), (512, 64), (656, 20)])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_in_a_cuda_graph(hidden: int, batch: int, bidirectional: bool) -> None:
    """Also where the last rows have a stream of their own, and each direction has; and twice back the same way."""
    layer: Any = unrolled.LSTM(
        64, hidden, backend="cuda", device="cuda", dtype=torch.float16, bidirectional=bidirectional
    )
    x = torch.randn(20, batch, 64, device="cuda", dtype=torch.float16)

    def step() -> tuple[Tensor, ...]:
        output: Tensor = layer(x)[0]
        total, parameters = output.sum(), list(layer.parameters())
        once = torch.autograd.grad(total, parameters, retain_graph=True)
        return output, *once, *torch.autograd.grad(total, parameters)

    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    x.copy_(torch.randn_like(x))
    graph.replay()
    assert all(torch.equal(c, e) for c, e in zip(captured, step(), strict=True))
    gradients = captured[1:]
    once, again = gradients[: len(gradients) // 2], gradients[len(gradients) // 2 :]
    assert all(torch.equal(o, a) for o, a in zip(once, again, strict=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_layers_under_autocast(bidirectional: bool, dtype: torch.dtype) -> None:
    """float32 modules; the weights' gradients are float32, and near torch.nn's."""
    theirs = nn.LSTM(40, 96, 2, bidirectional=bidirectional, device="cuda")
    ours: Any = unrolled.LSTM(40, 96, 2, bidirectional=bidirectional, device="cuda", backend="cuda")
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(30, 5, 40, device="cuda")
    with torch.autocast("cuda", dtype=dtype):
        output, _ = ours(x)
    assert output.dtype == dtype
    expected, _ = theirs(x)
    assert error(output, expected) < RELATIVE[dtype]
    output.float().pow(2).sum().backward()
    expected.pow(2).sum().backward()
    for found, wanted in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert wanted.grad is not None
        assert found.grad.dtype == torch.float32
        assert error(found.grad, wanted.grad) < 2 * RELATIVE[dtype]


def test_two_products_under_autocast() -> None:
    """Of a GRU that resets before: both parts of its weights' gradient are float32."""
    ours: Any = unrolled.GRU(40, 96, reset_after=False, device="cuda", backend="cuda")
    plain: Any = unrolled.GRU(40, 96, reset_after=False, device="cuda", backend="reference")
    plain.load_state_dict(ours.state_dict())
    x = torch.randn(30, 5, 40, device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        ours(x)[0].float().pow(2).sum().backward()
    plain(x)[0].pow(2).sum().backward()
    for found, wanted in zip(ours.parameters(), plain.parameters(), strict=True):
        assert found.grad.dtype == torch.float32
        assert error(found.grad, wanted.grad) < 2 * RELATIVE[torch.float16]


@pytest.mark.parametrize("options", [{}, {"reset_after": False}], ids=["LSTM", "GRU"])
def test_rows_that_are_filled_up_in_a_graph(options: dict[str, Any]) -> None:
    """Rows of 650 numbers: cuBLAS is given longer ones there, and the result is the same but for rounding."""
    kind = unrolled.GRU if options else unrolled.LSTM
    layer: Any = kind(650, 650, 2, backend="cuda", device="cuda", dtype=torch.float16, **options)
    x = torch.randn(35, 20, 650, device="cuda", dtype=torch.float16, requires_grad=True)

    def step() -> tuple[Tensor, ...]:
        return torch.autograd.grad(layer(x)[0].float().pow(2).sum(), [x, *layer.parameters()])

    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        expected = step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    graph.replay()
    for found, wanted in zip(captured, expected, strict=True):
        assert found.shape == wanted.shape
        assert error(found, wanted.double()) < RELATIVE[torch.float16]


def test_pieces_equal_the_whole() -> None:
    """Fed step by step, the state kept in the dtype of the module, the result is near that of one call."""
    layer: Any = unrolled.GRU(8, 64, backend="cuda", device="cuda", dtype=torch.float16)
    x = torch.randn(20, 3, 8, device="cuda", dtype=torch.float16)
    with torch.no_grad():
        whole, _ = layer(x)
        state, pieces = None, []
        for frame in x:
            output, state = layer(frame[None], state)
            pieces.append(output)
    assert error(torch.cat(pieces), whole) < RELATIVE[torch.float16]


@pytest.mark.parametrize("backend", ["cuda", "auto"])
def test_one_step_at_a_time(backend: str) -> None:
    layer: Any = unrolled.LSTM(8, 64, 2, backend=backend, device="cuda", dtype=torch.float16)
    x = torch.randn(20, 3, 8, device="cuda", dtype=torch.float16)
    stepper = layer.stepper()
    stream, state, outputs = stepper.stream(3), stepper.initial_state(3), []
    for frame in x:
        output, state = stepper(frame, state)
        outputs.append(output)
        assert torch.equal(stream.feed(frame), output)
    with torch.no_grad():
        assert error(torch.stack(outputs), layer(x)[0]) < 2 * RELATIVE[torch.float16]


def test_outputs_of_a_stream_are_the_callers_own() -> None:
    """Without gradients they share memory made for some steps ahead: more steps than that."""
    layer: Any = unrolled.LSTM(8, 64, backend="cuda", device="cuda", dtype=torch.float16)
    x = torch.randn(150, 2, 8, device="cuda", dtype=torch.float16)
    watched, stream = layer.stepper().stream(2), layer.stepper().stream(2)
    expected = [watched.feed(frame) for frame in x]
    with torch.no_grad():
        found = [stream.feed(frame) for frame in x]
    assert torch.equal(torch.stack(found), torch.stack(expected))
    assert len({output.data_ptr() for output in found}) == len(x)


def test_compiled() -> None:
    layer: Any = unrolled.LSTM(8, 64, backend="cuda", device="cuda", dtype=torch.float16)
    x = torch.randn(6, 3, 8, device="cuda", dtype=torch.float16, requires_grad=True)
    expected = torch.autograd.grad(layer(x)[0].sum(), [x, *layer.parameters()])
    compiled: Any = torch.compile(layer)
    found = torch.autograd.grad(compiled(x)[0].sum(), [x, *layer.parameters()])
    assert all(error(f, e) < RELATIVE[torch.float16] for f, e in zip(found, expected, strict=True))


def test_in_a_new_thread() -> None:
    """A thread in which torch has not used the GPU has no CUDA context yet."""
    job = cast(make({**PLAIN, "hidden": 64}, "cuda"), torch.float16)
    expected = results(job, ENGINES["cuda"])
    found: dict[str, Tensor] = {}
    thread = threading.Thread(target=lambda: found.update(results(job, ENGINES["cuda"])))
    thread.start()
    thread.join()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two GPUs here")
def test_on_another_gpu() -> None:
    """The current device stays as it is."""
    case = {**PLAIN, "hidden": 64}
    first, second = (results(cast(make(case, f"cuda:{i}"), torch.float16), ENGINES["cuda"]) for i in range(2))
    assert all(torch.equal(first[name].cpu(), second[name].cpu()) for name in first)
    assert torch.cuda.current_device() == 0


def test_a_launch_that_fails_names_the_reason() -> None:
    """More blocks than run at once."""
    program = compiler.recurrence(KINDS[LSTM], 64, torch.float16, 16)
    plan = Plan(10_000, 16, 8, 8, 8, shared_bytes=1024, accumulator_rows=8)
    with pytest.raises(UserError, match=r"could not launch a kernel: CUDA_ERROR_COOP.* Use backend='torch'"):
        launch.run(program, "forward", plan, Arguments(), torch.device("cuda:0"))


def test_refused_jobs_raise_the_reason() -> None:
    job = cast(make(PLAIN, "cuda"), torch.float32)
    with pytest.raises(UserError, match="it computes in float16 or bfloat16"):
        choose(job, "cuda")
    wide = make({**PLAIN, "hidden": 1600, "batch": 1, "steps": 1}, "cuda")
    with pytest.raises(UserError, match="it has up to 1536 units, got 1600"):
        choose(wide, "cuda")


def test_second_derivatives_are_those_of_reference() -> None:
    job = cast(make({**PLAIN, "hidden": 32, "lengths": False}, "cuda"), torch.float16)

    def second(engine: ModuleType) -> Tensor:
        output, _ = engine.run(job)
        (first,) = torch.autograd.grad(output.float().sum(), job.x, create_graph=True)
        (found,) = torch.autograd.grad(first.float().pow(2).sum(), job.x)
        return found.float()

    found, expected = (second(ENGINES[name]) for name in ("cuda", "reference"))
    assert (found - expected).norm() <= 1e-2 * expected.norm()
