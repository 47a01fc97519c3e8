"""The CTC loss and alignments on a GPU: our kernels against `reference` and torch's own loss. Skipped without a GPU.

Needs torch and pytest only: `python3 -m pytest --noconftest tests/gpu/test_ctc.py` runs where there is nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.kernels.ctc_cases import PLAIN, Case, draw, expected, found
from tests.kernels.pairs import pairwise
from tests.tolerances import assert_close
from unrolled.errors import UserError
from unrolled.kernels.ctc.cuda import engine
from unrolled.nn import ctc_align, ctc_loss

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")

CHOICES: dict[str, tuple[Any, ...]] = {
    "batch": (1, 5, 12),
    "steps": (1, 2, 8, 63, 400),
    "labels": (2, 3, 32, 1001),
    "longest": (1, 30, 126, 127, 128, 255, 300),
    "scale": (0.1, 1.0, 5.0, 50.0),
    "blank": (0, 1),
    "flat": (False, True),
    "time_major": (False, True),
    "zeros": (False, True),
}


@pytest.fixture(autouse=True)
def poisoned() -> Iterator[None]:
    """New memory holds NaN, so that what was not written is seen; numbers are the same in every run."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("case", list(pairwise(CHOICES, seed=0)), ids=lambda case: "-".join(map(str, case.values())))
def test_equals_reference(case: Case) -> None:
    job = draw(case, "cuda")
    (losses, gradient), (right, right_gradient) = found(job), expected(job)
    losses, gradient, finite = losses.cpu(), gradient.cpu(), right.isfinite()
    assert torch.equal(losses.isinf(), right.isinf())
    assert_close(losses[finite], right[finite].float())
    assert_close(gradient, right_gradient.float())
    with torch.no_grad():
        assert torch.equal(engine.losses(job).cpu(), losses)  # α alone


def drawn(batch: int, steps: int, labels: int, longest: int) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Scores (B, T, V), targets (B, L), and lengths that leave room for blanks, on the GPU."""
    scores = torch.randn(batch, steps, labels, device="cuda") * 2
    targets = torch.randint(1, labels, (batch, longest), device="cuda")
    target_lengths = torch.randint(longest // 2, longest + 1, (batch,), device="cuda")
    input_lengths = torch.randint(min(steps, 5 * longest // 2), steps + 1, (batch,), device="cuda")
    return scores, (targets, input_lengths, target_lengths)


@pytest.mark.parametrize(
    ("batch", "steps", "labels", "longest"),
    [(32, 500, 32, 80), (4, 3000, 64, 1100), (2, 5000, 40, 2000), (3, 300, 30_000, 60), (200, 100, 32, 20)],
)
def test_equals_torch(batch: int, steps: int, labels: int, longest: int) -> None:
    """Torch's own loss in float64; its gradient has softmax(log_probs) added to it."""
    scores, rest = drawn(batch, steps, labels, longest)
    mine = scores.log_softmax(-1).requires_grad_()
    theirs = mine.detach().double().requires_grad_()
    ours = ctc_loss(mine, *rest, reduction="none")
    right = F.ctc_loss(theirs.transpose(0, 1), *rest, reduction="none")
    assert right.isfinite().all()
    assert_close(ours, right.float())
    (gradient,) = torch.autograd.grad(ours.sum(), mine)
    (right_gradient,) = torch.autograd.grad(right.sum(), theirs)
    inside = torch.arange(steps, device="cuda") < rest[1][:, None]
    added = theirs.detach().exp().masked_fill(~inside[..., None], 0.0)
    assert_close(gradient, (right_gradient - added).float())


def test_ten_repeats_are_bit_identical() -> None:
    scores, rest = drawn(32, 500, 32, 80)
    scores.requires_grad_()

    def once() -> tuple[Tensor, Tensor]:
        loss = ctc_loss(scores.log_softmax(-1), *rest, reduction="none")
        return loss, torch.autograd.grad(loss.sum(), scores)[0]

    first = once()
    for _ in range(10):
        assert all(torch.equal(a, b) for a, b in zip(first, once(), strict=True))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("concatenated", [False, True])
def test_nothing_is_read_back(reduction: str, concatenated: bool) -> None:
    scores, (targets, inputs, lengths) = drawn(4, 60, 32, 20)
    if concatenated:
        targets = targets[torch.arange(20, device="cuda") < lengths[:, None]]
    scores.requires_grad_()
    ctc_loss(scores.log_softmax(-1), targets, inputs, lengths).backward()  # type: ignore[no-untyped-call]  # compiles
    torch.cuda.set_sync_debug_mode("error")
    try:
        given = (targets, inputs, lengths)
        loss = ctc_loss(scores.log_softmax(-1), *given, reduction=reduction, zero_infinity=True).sum()
        loss.backward()  # type: ignore[no-untyped-call]
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_in_a_cuda_graph() -> None:
    """Captured once, then run with other frames, targets and lengths."""
    static, other = drawn(8, 100, 32, 30), drawn(8, 100, 32, 30)

    def update(scores: Tensor, rest: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        leaf = scores.detach().requires_grad_()
        loss = ctc_loss(leaf.log_softmax(-1), *rest, reduction="sum", zero_infinity=True)
        return loss.detach(), torch.autograd.grad(loss, leaf)[0]

    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        update(*static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = update(*static)
    for fresh, old in zip((other[0], *other[1]), (static[0], *static[1]), strict=True):
        old.copy_(fresh)
    graph.replay()
    for found_there, right in zip(captured, update(*other), strict=True):
        assert torch.equal(found_there, right)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_sixteen_bits(dtype: torch.dtype) -> None:
    """Log-probabilities in 16 bits are summed up in 32; so are those that autocast computes from such scores."""
    scores, rest = drawn(4, 60, 32, 20)
    narrow = scores.to(dtype).log_softmax(-1).detach().requires_grad_()
    loss = ctc_loss(narrow, *rest, reduction="none")
    wide = narrow.detach().float().requires_grad_()
    right = ctc_loss(wide, *rest, reduction="none")
    assert loss.dtype == dtype
    assert torch.equal(loss, right.to(dtype))
    (gradient,), (right_gradient,) = torch.autograd.grad(loss.sum(), narrow), torch.autograd.grad(right.sum(), wide)
    assert gradient.dtype == dtype
    assert torch.equal(gradient, right_gradient.to(dtype))
    with torch.autocast("cuda", dtype):
        half = scores.to(dtype)
        under = ctc_loss(half.log_softmax(-1), *rest, reduction="none")
    exact = ctc_loss(half.double().log_softmax(-1), *rest, reduction="none", backend="reference")
    assert under.dtype == torch.float32
    assert_close(under, exact.float())


@pytest.mark.parametrize("where", ["cpu", "cuda", "list", "mixed"])
def test_targets_come_from_anywhere(where: str) -> None:
    scores, (targets, inputs, lengths) = drawn(4, 60, 32, 20)
    log_probs = scores.log_softmax(-1)
    right = ctc_loss(log_probs.cpu(), targets.cpu(), inputs.cpu(), lengths.cpu(), reduction="none", backend="reference")
    rows = [row[:length].tolist() for row, length in zip(targets, lengths.tolist(), strict=True)]
    given: dict[str, tuple[Any, Any, Any]] = {
        "cpu": (targets.cpu(), inputs.cpu(), lengths.cpu()),
        "cuda": (targets.int(), inputs.int(), lengths.int()),
        "list": (rows, inputs.tolist(), None),
        "mixed": (targets, inputs.tolist(), lengths.cpu()),
    }
    assert_close(ctc_loss(log_probs, *given[where], reduction="none", backend="cuda").cpu(), right.float())


def test_wrong_numbers_make_their_loss_nan_and_no_gradient() -> None:
    scores, (targets, inputs, lengths) = drawn(5, 60, 32, 20)
    targets[0, 1], inputs[1], lengths[2] = 32, 61, 21
    scores[3, 5, 0] = torch.nan
    log_probs = scores.log_softmax(-1).requires_grad_()
    losses = ctc_loss(log_probs, targets, inputs, lengths, reduction="none")
    assert losses.isnan().tolist() == [True] * 4 + [False]
    (gradient,) = torch.autograd.grad(losses.sum(), log_probs)
    assert (gradient[:4] == 0).all()
    assert (gradient[4] != 0).any()


@pytest.mark.parametrize(("frames", "length"), [(1, 1), (1, 0), (50, 20), (700, 300), (3000, 1000)])
def test_alignments_are_the_cpus(frames: int, length: int) -> None:
    log_probs = torch.randn(frames, 32).log_softmax(-1)
    target = torch.randint(1, 32, (length,))
    there, here = ctc_align(log_probs.cuda(), target), ctc_align(log_probs, target)
    assert there.path == here.path
    assert there.spans == here.spans
    assert there.log_prob == pytest.approx(here.log_prob, rel=1e-12)


def test_alignments_that_do_not_exist() -> None:
    frames = torch.zeros(3, 4, device="cuda").log_softmax(-1)
    with pytest.raises(UserError, match="No path of 3 frames reads as the target of 3 labels"):
        ctc_align(frames, [1, 1, 1])
    frames[1] = torch.nan
    with pytest.raises(UserError, match=r"log_probs\[0, 1, 0\] is nan"):
        ctc_align(frames, [1, 2])


def test_auto_takes_it_and_others_are_refused() -> None:
    scores, rest = drawn(2, 30, 8, 5)
    log_probs = scores.log_softmax(-1)
    assert torch.equal(ctc_loss(log_probs, *rest), ctc_loss(log_probs, *rest, backend="cuda"))
    assert_close(ctc_loss(log_probs.double(), *rest).float(), ctc_loss(log_probs, *rest))  # by `reference`
    with pytest.raises(UserError, match=r"it computes in float32, got torch\.float64"):
        ctc_loss(log_probs.double(), *rest, backend="cuda")
    with pytest.raises(UserError, match="it has up to 2047 labels in a target, got 2048"):
        ctc_loss(log_probs[:1, :1].expand(1, 2048, 8), torch.ones(1, 2048).long(), backend="cuda")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"targets": torch.ones(2, 2)}, "targets must be whole numbers, got torch.float32."),
        ({"targets": torch.ones(3, 2).long()}, "targets of shape (3, 2) do not go with a batch of 2."),
        (
            {"targets": torch.ones(4).long(), "target_lengths": None},
            "Concatenated targets need target_lengths. Give the length of each.",
        ),
        ({"input_lengths": torch.ones(3).long()}, "input_lengths has 3 numbers for a batch of 2."),
        ({"target_lengths": torch.ones(2)}, "target_lengths must be whole numbers from 0 up, got torch.float32."),
        (
            {"target_lengths": [1, 3]},
            "targets of shape (2, 2) do not go with target_lengths [1, 3] and a batch of 2.",
        ),
    ],
)
def test_bad_shapes(changes: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"targets": torch.ones(2, 2).long(), "input_lengths": None, "target_lengths": [1, 2]}
    given |= changes
    moved: dict[str, Any] = {
        name: value.cuda() if isinstance(value, Tensor) else value for name, value in given.items()
    }
    with pytest.raises(UserError) as error:
        ctc_loss(torch.zeros(2, 3, 4, device="cuda"), **moved)
    assert str(error.value) == message


def test_from_another_thread_and_stream() -> None:
    job = draw({**PLAIN, "batch": 5, "steps": 90, "longest": 60}, "cuda")
    right, results = found(job), []

    def work() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
            results.append(found(job))
        torch.cuda.synchronize()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert all(torch.equal(a, b) for a, b in zip(right, results[0], strict=True))


def test_the_operator_is_what_it_says_it_is() -> None:
    job = draw({**PLAIN, "flat": True}, "cuda")
    job.log_probs.requires_grad_()
    tests = ("test_schema", "test_faketensor", "test_autograd_registration")
    torch.library.opcheck(engine.ctc.forward, (*job, True), test_utils=tests)


def test_second_derivatives_are_those_of_reference() -> None:
    job = draw(PLAIN, "cuda")

    def second(losses: Callable[[engine.CTCBatch], Tensor]) -> Tensor:
        log_probs = job.log_probs.detach().requires_grad_()
        (first,) = torch.autograd.grad(losses(job._replace(log_probs=log_probs)).sum(), log_probs, create_graph=True)
        (found,) = torch.autograd.grad(first.pow(2).sum(), log_probs)
        return found

    assert_close(second(engine.losses), second(lambda job: engine._reference(job)[0]))


@pytest.mark.parametrize("longest", [9, 200])
def test_small(longest: int) -> None:
    """Small enough for compute-sanitizer, which makes everything slow (`make sanitize-gpu`)."""
    test_equals_reference({**PLAIN, "batch": 5, "steps": 25, "longest": longest})
    engine.align(draw({**PLAIN, "batch": 5, "steps": 25, "longest": longest}, "cuda"))
