"""The CTC loss: all paths written out, torch's own loss, and every kind of sample that has no path."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests import warm
from tests.tolerances import assert_close
from unrolled.errors import UserError
from unrolled.kernels import ENGINES
from unrolled.kernels.ctc import reference
from unrolled.nn import ctc_align, ctc_loss, find_infeasible
from unrolled.nn.ctc import ctc_occupancy

BACKENDS = ["reference", *(["native"] if "native" in ENGINES else [])]
native_only = pytest.mark.skipif("native" not in ENGINES, reason="the native engine is not built")


def reads(path: Sequence[int], blank: int) -> list[int]:
    """The labels of a path: repeated labels become one, then blanks are removed."""
    return [label for label, _ in itertools.groupby(path) if label != blank]


def all_paths(log_probs: Tensor, target: list[int], blank: int) -> list[tuple[int, ...]]:
    frames, labels = log_probs.shape
    return [path for path in itertools.product(range(labels), repeat=frames) if reads(path, blank) == target]


def brute_force(log_probs: Tensor, target: list[int], blank: int) -> Tensor:
    """−log of the summed probability of all paths, differentiable."""
    paths = all_paths(log_probs, target, blank)
    if not paths:
        return log_probs.new_tensor(torch.inf)
    index = torch.tensor(paths, dtype=torch.int64).reshape(len(paths), -1)  # (paths, T)
    scores = [log_probs[torch.arange(len(log_probs)), path].sum() for path in index]
    return -torch.stack(scores).logsumexp(0)


def random_log_probs(*shape: int, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
    return (torch.randn(*shape, dtype=torch.float64) * scale).log_softmax(-1).to(dtype)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("frames", "target"),
    [
        (1, [1]),
        (1, []),
        (0, []),
        (4, []),
        (4, [1]),
        (4, [1, 2]),
        (4, [1, 1]),
        (5, [2, 1, 2]),
        (6, [1, 1, 2]),
        (3, [1, 1]),
    ],
)
@pytest.mark.parametrize("blank", [0, 2])
def test_is_the_sum_over_all_paths(backend: str, frames: int, target: list[int], blank: int) -> None:
    target = [(label + blank) % 3 for label in target]
    exact = random_log_probs(frames, 3, dtype=torch.float64).requires_grad_()
    expected = brute_force(exact, target, blank)
    log_probs = exact.detach().to(torch.float32 if backend == "native" else torch.float64).requires_grad_()
    loss = ctc_loss(log_probs, torch.tensor(target, dtype=torch.long), blank=blank, reduction="sum", backend=backend)
    assert_close(loss, expected.to(loss.dtype))
    loss.backward()  # type: ignore[no-untyped-call]
    if frames:
        expected.backward()  # type: ignore[no-untyped-call]
        assert log_probs.grad is not None
        assert exact.grad is not None
        assert_close(log_probs.grad, exact.grad.to(log_probs.dtype))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("scale", [0.0, 1.0, 4.0])
def test_equals_torch(backend: str, reduction: str, scale: float) -> None:
    batch, frames, labels, longest = 7, 120, 9, 40
    scores = (torch.randn(batch, frames, labels, dtype=torch.float64) * scale).requires_grad_()
    targets = torch.randint(1, labels, (batch, longest))
    input_lengths = torch.tensor([120, 119, 80, 100, 97, 90, 113])
    target_lengths = torch.tensor([40, 0, 40, 17, 1, 32, 16])
    weights = torch.rand(batch, dtype=torch.float64)

    def total(losses: Tensor) -> Tensor:
        return (losses * weights).sum() if reduction == "none" else losses

    rest = (targets, input_lengths, target_lengths)
    theirs = torch.nn.functional.ctc_loss(scores.log_softmax(-1).transpose(0, 1), *rest, reduction=reduction)
    total(theirs).backward()  # type: ignore[no-untyped-call]
    expected, scores.grad = scores.grad, None
    dtype = torch.float32 if backend == "native" else torch.float64
    ours = ctc_loss(scores.log_softmax(-1).to(dtype), *rest, reduction=reduction, backend=backend)
    assert_close(ours, theirs.to(dtype))
    total(ours).backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    assert expected is not None
    assert_close(scores.grad.to(dtype), expected.to(dtype))


@native_only
@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 15, 16, 17, 32])
@pytest.mark.parametrize("spare", [0, 1, 2, 16])
def test_targets_as_long_as_their_frames(length: int, spare: int) -> None:
    log_probs = random_log_probs(length + spare, 5).requires_grad_()
    target = torch.arange(length) % 4 + 1
    both = [ctc_loss(log_probs, target, backend=backend) for backend in ("native", "reference")]
    assert_close(both[0], both[1])
    assert_close(torch.autograd.grad(both[0], log_probs)[0], torch.autograd.grad(both[1], log_probs)[0])


@native_only
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_native_equals_the_plain_loss(data: st.DataObject) -> None:
    torch.manual_seed(data.draw(st.integers(0, 2**32)))
    batch = data.draw(st.integers(1, 4))
    labels, frames = data.draw(st.integers(2, 40)), data.draw(st.integers(0, 70))
    lengths = [data.draw(st.integers(0, frames)) for _ in range(batch)]
    targets = [
        data.draw(st.lists(st.integers(1, labels - 1), max_size=min(frames, 36))) for _ in range(batch)
    ]  # more than one block of 16 states, in any place of the band
    log_probs = random_log_probs(batch, frames, labels, scale=data.draw(st.sampled_from([0.1, 1.0, 5.0, 50.0])))
    if frames and data.draw(st.booleans()):
        log_probs[torch.rand(log_probs.shape) < 0.05] = -torch.inf
    mine, plain = log_probs.clone().requires_grad_(), log_probs.clone().requires_grad_()
    ours = ctc_loss(mine, targets, lengths, reduction="none", backend="native")
    expected = ctc_loss(plain, targets, lengths, reduction="none", backend="reference")
    finite = expected.isfinite()
    assert torch.equal(finite, ours.isfinite())
    assert_close(ours[finite], expected[finite])
    ours.sum().backward()  # type: ignore[no-untyped-call]
    expected.sum().backward()  # type: ignore[no-untyped-call]
    assert mine.grad is not None
    assert plain.grad is not None
    assert_close(mine.grad, plain.grad)


@pytest.mark.parametrize("backend", BACKENDS)
def test_targets_without_a_path_have_no_gradient(backend: str) -> None:
    log_probs = random_log_probs(3, 4, 5).requires_grad_()
    targets = [[1, 2, 3, 4, 1], [2, 2, 2], [1, 2]]  # five labels, or three and two blanks, in four frames
    losses = ctc_loss(log_probs, targets, reduction="none", backend=backend)
    assert losses.isinf().tolist() == [True, True, False]
    losses.sum().backward()  # type: ignore[no-untyped-call]
    assert log_probs.grad is not None
    assert log_probs.grad.isfinite().all()
    assert (log_probs.grad[:2] == 0).all()
    assert (log_probs.grad[2] != 0).any()
    zeroed = ctc_loss(log_probs, targets, reduction="none", zero_infinity=True, backend=backend)
    assert zeroed[:2].tolist() == [0, 0]
    assert zeroed[2] == losses[2]


@pytest.mark.parametrize("backend", BACKENDS)
def test_improbable_paths_do_not_underflow(backend: str) -> None:
    """The target is 10,000 nats from what the frames say: far below float64's smallest number."""
    frames, labels = 100, 4
    log_probs = torch.full((frames, labels), -100.0)
    log_probs[:, 3] = 0.0
    loss = ctc_loss(log_probs.requires_grad_(), torch.tensor([1, 2]), reduction="sum", backend=backend)
    paths = frames * (frames - 1) * (frames + 1) * (frames + 2) / 24  # four places where something changes
    assert_close(loss, torch.tensor(100.0 * frames - torch.tensor(paths).double().log().item()))
    loss.backward()  # type: ignore[no-untyped-call]
    assert log_probs.grad is not None
    assert_close(log_probs.grad.sum(-1), torch.full((frames,), -1.0))


@pytest.mark.parametrize("backend", BACKENDS)
def test_padding_changes_nothing(backend: str) -> None:
    log_probs = random_log_probs(2, 30, 6)
    log_probs[0, 20:] = torch.nan
    targets = torch.tensor([[1, 2, 3, 5, 5], [4, 4, 1, 0, 0]])
    both = ctc_loss(log_probs, targets, [20, 30], [5, 3], reduction="none", backend=backend)
    flat = ctc_loss(
        log_probs, torch.tensor([1, 2, 3, 5, 5, 4, 4, 1]), [20, 30], [5, 3], reduction="none", backend=backend
    )
    assert torch.equal(both, flat)
    for row, (frames, length) in enumerate([(20, 5), (30, 3)]):
        alone = ctc_loss(log_probs[row, :frames], targets[row, :length], reduction="none", backend=backend)
        assert_close(alone, both[row])


@native_only
def test_operator_is_well_behaved() -> None:
    from unrolled.kernels.ctc import native_ops as ctc_ops
    from unrolled.kernels.ctc.reference import CTCJob

    log_probs = random_log_probs(2, 12, 5).requires_grad_()
    inputs = CTCJob(
        log_probs,
        targets=torch.tensor([1, 2, 2]),
        offsets=torch.tensor([0, 1]),
        input_lengths=torch.tensor([12, 9]),
        target_lengths=torch.tensor([1, 2]),
        blank=0,
    )
    torch.library.opcheck(ctc_ops.ctc.forward, (*inputs, True))
    found = []
    for losses in (ctc_ops.ctc(inputs).losses, reference.losses(inputs).float()):
        (first,) = torch.autograd.grad(losses.pow(2).sum(), log_probs, create_graph=True)
        found += [first, *torch.autograd.grad(first.pow(2).sum(), log_probs)]
    assert_close(found[0], found[2])
    assert_close(found[1], found[3])


def test_plain_loss_has_every_derivative() -> None:
    log_probs = random_log_probs(2, 5, 4, dtype=torch.float64).requires_grad_()

    def loss(x: Tensor) -> Tensor:
        return ctc_loss(x, [[1, 1], [3]], [5, 4], backend="reference")

    assert torch.autograd.gradcheck(loss, log_probs)
    assert torch.autograd.gradgradcheck(loss, log_probs)


@native_only
@pytest.mark.parametrize("isa", [isa for isa in ("avx2", "plain", "neon") if "native" in ENGINES])
def test_every_instruction_set_computes_it(isa: str) -> None:
    from unrolled.kernels import _native

    if isa not in _native.isas():
        pytest.skip(f"{isa} does not run here")
    code = (
        "import tests.nn.test_ctc as t\n"
        "t._native_scratch(); t.test_equals_torch('native', 'none', 4.0); t.test_native_equals_the_plain_loss()"
    )
    warm.python("-c", code, env={"UNROLLED_ISA": isa}, check=True)


def _native_scratch() -> None:
    from unrolled.kernels import _native

    _native.set_scratch_nan(True)


@native_only
def test_nothing_is_read_before_it_is_written() -> None:
    from unrolled.kernels import _native

    _native.set_scratch_nan(True)
    try:
        test_native_equals_the_plain_loss()
    finally:
        _native.set_scratch_nan(False)


@native_only
def test_threads_change_nothing() -> None:
    log_probs = random_log_probs(9, 40, 6).requires_grad_()
    targets = torch.randint(1, 6, (9, 11))
    found = []
    for threads in (1, 4):
        torch.set_num_threads(threads)
        loss = ctc_loss(log_probs, targets, backend="native")
        found.append((loss, torch.autograd.grad(loss, log_probs)[0]))
    torch.set_num_threads(1)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("frames", "target"), [(4, [1, 2]), (5, [1, 1]), (3, []), (6, [2, 1, 1]), (3, [1, 1])])
def test_alignment_is_the_best_path(backend: str, frames: int, target: list[int]) -> None:
    log_probs = random_log_probs(frames, 3)
    paths = all_paths(log_probs, target, 0)
    best = max(paths, key=lambda path: sum(log_probs[t, label].item() for t, label in enumerate(path)))
    found = ctc_align(log_probs, target, backend=backend)
    assert found.path == list(best)
    assert found.log_prob == pytest.approx(sum(log_probs[t, label].item() for t, label in enumerate(best)))
    assert [found.path[start:end] for start, end in found.spans] == [
        [label] * (end - start) for label, (start, end) in zip(target, found.spans, strict=True)
    ]
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(found.spans))


def test_infeasible_samples_are_named() -> None:
    found = find_infeasible([[1, 2], torch.tensor([1, 1, 1]), [], [5]], [1, 4, 0, 9])
    assert [str(one) for one in found] == [
        "sample 0 has 1 frames, its target needs 2",
        "sample 1 has 4 frames, its target needs 5",
    ]
    assert [tuple(one) for one in found] == [(0, 1, 2), (1, 4, 5)]


LOG_PROBS = torch.zeros(2, 3, 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ctc_loss(torch.zeros(3), [[1]]), "log_probs must be (batch, frames, labels), got shape (3,)."),
        (lambda: ctc_loss(LOG_PROBS.long(), [[1], [1]]), "log_probs must be floating-point numbers, got torch.int64."),
        (
            lambda: ctc_loss(LOG_PROBS, [[1], [0]]),
            "The target of sample 1 holds the label 0. Labels go from 0 to 3, without the blank 0.",
        ),
        (
            lambda: ctc_loss(LOG_PROBS, [[1, 4], [1]]),
            "The target of sample 0 holds the label 4. Labels go from 0 to 3, without the blank 0.",
        ),
        (lambda: ctc_loss(LOG_PROBS, [[1]]), "The targets have lengths [1], for a batch of 2."),
        (
            lambda: ctc_loss(LOG_PROBS, [[1], [1]], [4, 3]),
            "input_lengths has [4, 3], but there are 3 frames. Use lengths from 0 to 3.",
        ),
        (lambda: ctc_loss(LOG_PROBS, [[1], [1]], [3]), "input_lengths has 1 numbers for a batch of 2."),
        (
            lambda: ctc_loss(LOG_PROBS, [[1], [1]], [3, -1]),
            "input_lengths must be whole numbers from 0 up, got [3, -1].",
        ),
        (
            lambda: ctc_loss(LOG_PROBS, torch.tensor([1, 1])),
            "Concatenated targets need target_lengths. Give the length of each.",
        ),
        (
            lambda: ctc_loss(LOG_PROBS, torch.tensor([1, 1, 1]), None, [1, 1]),
            "target_lengths add up to 2, but there are 3 labels.",
        ),
        (
            lambda: ctc_loss(LOG_PROBS, torch.ones(2, 2).long(), None, [1, 3]),
            "targets of shape (2, 2) do not go with target_lengths [1, 3] and a batch of 2.",
        ),
        (lambda: ctc_loss(LOG_PROBS, torch.ones(2, 2)), "targets must be whole numbers, got torch.float32."),
        (
            lambda: ctc_loss(LOG_PROBS, [[1], [1]], blank=4),
            "blank=4 is not one of the 4 labels. Use a number from 0 to 3.",
        ),
        (
            lambda: ctc_loss(LOG_PROBS, [[1], [1]], reduction="average"),
            "Unknown reduction 'average'. Choices: mean, none, sum.",
        ),
        (
            lambda: ctc_loss(LOG_PROBS, [[1], [1]], backend="cuda"),
            "The backend 'cuda' cannot do this: it runs on an NVIDIA GPU, the input is on cpu. Use backend='auto'.",
        ),
        (
            lambda: ctc_loss(LOG_PROBS, [[1], [1]], backend="cudnn"),
            "Unknown backend 'cudnn'. Did you mean 'cuda'? Choices: auto, cuda, native, reference.",
        ),
        (
            lambda: ctc_align(LOG_PROBS[0], [1, 1, 1]),
            "No path of 3 frames reads as the target of 3 labels. A target needs a frame for each label, a blank "
            "between equal labels, and probabilities above 0.",
        ),
        (
            lambda: ctc_loss(torch.rand(0, 0, 4), torch.tensor([], dtype=torch.long), [], [], reduction="none"),
            "log_probs tensor must not be empty, got shape (0, 0, 4). Expected (batch, frames, labels); a sequence "
            "without frames is a length of 0.",
        ),
        (lambda: ctc_align(LOG_PROBS, [1]), "log_probs must be (frames, labels), got shape (2, 3, 4)."),
    ],
)
def test_bad_input(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(UserError) as error:
        call()
    assert str(error.value) == message


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_frames_that_are_no_numbers(backend: str, value: float) -> None:
    log_probs = random_log_probs(2, 5, 20).requires_grad_()
    broken = log_probs.clone()
    broken[1, 3, 17] = value
    with pytest.raises(UserError) as error:
        ctc_loss(broken, [[1], [2]], backend=backend)
    assert str(error.value) == (
        f"log_probs[1, 3, 17] is {value}. "
        "The network's weights may not be finite: use a lower learning rate, or clip gradients."
    )


@native_only
def test_native_in_float64_is_refused() -> None:
    with pytest.raises(UserError) as error:
        ctc_loss(LOG_PROBS.double(), [[1], [1]], backend="native")
    assert str(error.value) == (
        "The backend 'native' cannot do this: it computes in float32, got torch.float64. Use backend='auto'."
    )


@pytest.mark.parametrize(("frames", "target"), [(4, [1, 2]), (5, [1, 1]), (3, []), (4, [2])])
def test_occupancy_is_the_share_of_the_paths_in_a_state(frames: int, target: list[int]) -> None:
    log_probs = random_log_probs(frames, 3, dtype=torch.float64)
    expected = torch.zeros(frames, 2 * len(target) + 1, dtype=torch.float64)
    for path in all_paths(log_probs, target, 0):
        weight = log_probs[torch.arange(frames), torch.tensor(path)].sum().exp()
        state, before = 0, 0
        for t, label in enumerate(path):
            if label != before:  # on to the next label or blank; from label to label over the blank between them
                state += 1 if 0 in (label, before) else 2
            expected[t, state] += weight
            before = label
    expected /= expected[0].sum()
    assert_close(ctc_occupancy(log_probs, target), expected.float())
