"""The GPU kernels of vocabularies without a GPU: compiled by NVRTC, and run on a simulated GPU against torch."""

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
import torch.nn.functional as F

from tests.kernels.compiled import gpu_report
from tests.kernels.pairs import pairwise
from tests.kernels.simulator import OUTCOMES, library
from unrolled.kernels.cuda import launch
from unrolled.kernels.cuda.compiler import Program
from unrolled.kernels.cuda.launch import IndependentBlocks
from unrolled.kernels.vocabulary import chunked
from unrolled.kernels.vocabulary.chunked import IGNORED
from unrolled.kernels.vocabulary.cuda import constants, engine, plan
from unrolled.kernels.vocabulary.cuda.arguments import INTEGERS, POINTERS, VocabularyArguments
from unrolled.nn.embedding import Embedding, _Lookup

needs_nvrtc = pytest.mark.skipif(
    importlib.util.find_spec("cuda") is None, reason="cuda-bindings and nvidia-cuda-nvrtc are not installed"
)
needs_gcc = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here")
PROGRAMS = {
    "warps": plan.cross_entropy_program(torch.bfloat16, 64),
    "blocks": plan.cross_entropy_program(torch.float16, 8000),
    "embedding": plan.EMBEDDING,
    "top scores": plan.top_scores_program(torch.float32),
    "top scores, bfloat16": plan.top_scores_program(torch.bfloat16),
}


@needs_nvrtc
@pytest.mark.parametrize("which", PROGRAMS)
def test_every_kernel_compiles_and_stays_in_registers(which: str) -> None:
    log = gpu_report(PROGRAMS[which], "sm_90")
    assert re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill", log) == [("0", "0")]


def test_kernels_and_python_share_their_constants() -> None:
    names = re.findall(r"constexpr int (\w+) =", constants.header())
    assert {"WARPS", "PACKED", "SLICES"} <= set(names)
    for text in (text for name, text in plan.sources().items() if name != "constants.h"):
        assert not re.search(rf"\b(?:{'|'.join(names)}) = ", text)
    assert ctypes.sizeof(VocabularyArguments) == 8 * (len(POINTERS) + len(INTEGERS) + 1)


@functools.cache
def build(program: Program) -> ctypes.CDLL:
    name = program.source.removesuffix(".cu")
    defines = [*program.defines, f'-DKERNEL_SOURCE="{program.source}"', f"-DKERNEL_NAME={name}"]
    return library("one_simulated_kernel.cpp", plan.sources(), *defines)


@pytest.fixture(autouse=True)
def simulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """A function that sets up a simulated GPU with an order of threads; new buffers hold NaN."""
    torch.use_deterministic_algorithms(True)  # fills new memory

    def set_up(seed: int) -> None:
        def run(program: Program, name: str, how: IndependentBlocks, given: Any, device: torch.device) -> None:
            outcome = build(program).launch_kernel(ctypes.byref(given), how.blocks, how.shared_bytes, seed)
            assert outcome == 0, OUTCOMES[outcome]

        monkeypatch.setattr(launch, "run", run)

    set_up(0)
    yield set_up
    torch.use_deterministic_algorithms(False)


CROSS_ENTROPY: dict[str, tuple[Any, ...]] = {
    "size": ((1, 1), (9, 59), (17, 8), (3, 1023), (2, 1025), (3, 5003)),
    "smoothing": (0.0, 0.1),
    "dtype": (torch.bfloat16, torch.float16),
}


@needs_gcc
@pytest.mark.parametrize(
    ("rows", "vocabulary", "smoothing", "dtype"),
    [(*case.pop("size"), *case.values()) for case in pairwise(CROSS_ENTROPY, seed=0)],
)
def test_the_cross_entropy_is_torchs(rows: int, vocabulary: int, smoothing: float, dtype: torch.dtype) -> None:
    torch.manual_seed(rows)
    scores = torch.full((rows, engine.padded(vocabulary)), 30.0).to(dtype)  # beyond the vocabulary they do not count
    scores[:, :vocabulary] = 3 * torch.randn(rows, vocabulary)
    targets = torch.randint(vocabulary, (rows,))
    targets[1::4] = IGNORED
    exact = scores[:, :vocabulary].double().requires_grad_()
    options: dict[str, Any] = {"label_smoothing": smoothing, "ignore_index": IGNORED, "reduction": "none"}
    expected = F.cross_entropy(exact, targets, **options)
    (gradient,) = torch.autograd.grad(expected.sum(), exact)
    before = scores.clone()
    again = engine.cross_entropy_(scores, targets, vocabulary, smoothing, IGNORED, with_gradient=False)
    assert torch.equal(scores, before)
    losses = engine.cross_entropy_(scores, targets, vocabulary, smoothing, IGNORED, with_gradient=True)
    assert torch.equal(losses, again)
    torch.testing.assert_close(losses, expected.detach().float(), rtol=2e-6, atol=2e-5)
    rounding = 2**-8 if dtype == torch.bfloat16 else 2**-11
    torch.testing.assert_close(scores[:, :vocabulary].double(), gradient, rtol=rounding, atol=1e-6)
    assert not scores[:, vocabulary:].any()


@needs_gcc
def test_a_target_out_of_range_makes_the_loss_nan() -> None:
    scores = torch.zeros(3, 8, dtype=torch.bfloat16)
    losses = engine.cross_entropy_(scores, torch.tensor([5, 2, -1]), 5, 0.0, IGNORED, with_gradient=True)
    assert losses.isnan().tolist() == [True, False, True]


@needs_gcc
def test_scores_that_are_not_finite_do_not_hide() -> None:
    scores = torch.zeros(2, 8, dtype=torch.bfloat16)
    scores[0, 3] = torch.nan
    losses = engine.cross_entropy_(scores, torch.tensor([5, 2]), 8, 0.0, IGNORED, with_gradient=True)
    assert losses.isnan().tolist() == [True, False]


@needs_gcc
@pytest.mark.parametrize(
    ("tokens", "vocabulary", "width", "most"),
    [(1, 1, 1, 1024), (100, 7, 70, 1024), (1025, 3, 64, 1024), (1100, 90, 33, 8), (300, 130, 65, 4)],
)
def test_the_gradient_of_an_embedding_is_torchs(
    tokens: int,
    vocabulary: int,
    width: int,
    most: int,
    simulated: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Few blocks take many tokens of the vocabulary each, as those of a large one do."""
    monkeypatch.setattr(plan, "MOST_BLOCKS", most)
    torch.manual_seed(tokens)
    ids, d_vectors = torch.randint(vocabulary, (tokens,)), torch.randn(tokens, width)
    padding = vocabulary // 2
    found = engine.embedding_gradient(d_vectors, ids, vocabulary, padding)
    wide = torch.ops.aten.embedding_dense_backward(d_vectors.double(), ids, vocabulary, padding, False)
    torch.testing.assert_close(found, wide.float(), rtol=1e-5, atol=1e-5)
    simulated(7)  # threads at other speeds
    assert torch.equal(engine.embedding_gradient(d_vectors, ids, vocabulary, padding), found)


@needs_gcc
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(("rows", "smoothing", "most"), [(1, 0.0, 10**6), (64, 0.1, 10**6), (64, 0.0, 8 * 40)])
def test_the_loss_of_a_linear_layer_is_torchs_to_16_bits(
    rows: int, smoothing: float, most: int, biased: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers that 16 bits hold exactly: only scores and gradients are rounded."""
    monkeypatch.setattr(engine, "ready", lambda device: True)
    monkeypatch.setattr(chunked, "MOST_SCORES", most)
    torch.manual_seed(rows)
    x, weight = (torch.randn(n, 12).bfloat16().float().requires_grad_() for n in (rows, 33))
    bias = torch.randn(33).bfloat16().float().requires_grad_() if biased else None
    targets = torch.randint(33, (rows,))
    targets[1::3] = IGNORED
    inputs = [one for one in (x, weight, bias) if one is not None]
    loss = chunked.linear_cross_entropy(x.bfloat16(), weight, bias, targets, smoothing)
    expected = F.cross_entropy(F.linear(x, weight, bias), targets, reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(loss, expected, rtol=1e-2, atol=1e-2)
    for found, true in zip(
        torch.autograd.grad(2.5 * loss, inputs), torch.autograd.grad(2.5 * expected, inputs), strict=True
    ):
        assert found.dtype == torch.float32
        assert (found - true).norm() <= 1e-2 * true.norm()


@needs_gcc
def test_an_embedding_gives_the_kernel_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "ready", lambda device: True)
    layer, ids = Embedding(9, 5, padding_idx=2), torch.tensor([[1, 2, 8], [1, 0, 1]])
    found = _Lookup.apply(layer.weight, ids, layer.padding_idx)  # type: ignore[no-untyped-call]
    given = torch.randn(3, 2, 5).transpose(0, 1)  # not contiguous
    (gradient,) = torch.autograd.grad(found, layer.weight, given, retain_graph=True)
    (again,) = torch.autograd.grad(found, layer.weight, given, create_graph=True)
    (right,) = torch.autograd.grad(layer(ids), layer.weight, given)
    torch.testing.assert_close(gradient, right)
    torch.testing.assert_close(again, right)


TOP_SCORES: dict[str, tuple[Any, ...]] = {
    "size": ((1, 1, 1), (5, 59, 10), (3, 700, 64), (2, 2049, 3)),
    "normalised": (True, False),
    "blocking": ("none", "one row", "every row"),
    "dtype": (torch.float32, torch.bfloat16, torch.float16),
}


@needs_gcc
@pytest.mark.parametrize(
    ("rows", "vocabulary", "count", "normalised", "blocking", "dtype"),
    [(*case.pop("size"), *case.values()) for case in pairwise(TOP_SCORES, seed=0)],
)
def test_the_top_scores_are_those_of_a_stable_sort(
    rows: int, vocabulary: int, count: int, normalised: bool, blocking: str, dtype: torch.dtype
) -> None:
    torch.manual_seed(rows)
    wide = torch.randn(rows, vocabulary + 3).round(decimals=1).to(dtype)  # many ties
    scores = wide[:, :vocabulary]
    blocked = None
    if blocking != "none":
        blocked = torch.rand(1 if blocking == "one row" else rows, vocabulary) < 0.3
    ending = vocabulary // 2
    values, tokens, norms, endings = engine.top_scores(scores, count, blocked, normalised, ending)
    torch.testing.assert_close(norms, torch.zeros(rows) if normalised else scores.float().logsumexp(-1))
    exact = scores.float() if normalised else scores.float().log_softmax(-1)
    if blocked is not None:
        exact = exact.masked_fill(blocked, -torch.inf)
    ordered, order = exact.sort(dim=-1, descending=True, stable=True)
    torch.testing.assert_close(values, ordered[:, :count], rtol=1e-6, atol=2e-6)
    there = ordered[:, :count] > -torch.inf
    assert torch.equal(tokens[there], order[:, :count][there])
    assert endings is not None
    torch.testing.assert_close(endings, exact[:, ending], rtol=1e-6, atol=2e-6)


@needs_gcc
@pytest.mark.parametrize("scores", ["rising", "equal", "one group"])
def test_the_best_tokens_of_rows_in_which_many_reach_the_bound(scores: str) -> None:
    """More tokens than a block has places for are taken in turn."""
    wide = torch.zeros(2, 4096)
    if scores == "rising":
        wide += torch.arange(4096) / 10
    if scores == "one group":
        wide[:, (torch.arange(4096) // 4 % 256) < 40] = 1.0
    values, tokens, _, _ = engine.top_scores(wide, 40, None, True)
    ordered, order = wide.sort(dim=-1, descending=True, stable=True)
    assert torch.equal(values, ordered[:, :40])
    assert torch.equal(tokens, order[:, :40])


@needs_gcc
@pytest.mark.parametrize("normalised", [True, False])
def test_a_nan_among_scores_does_not_hide(normalised: bool) -> None:
    scores = torch.zeros(4, 300)
    scores[1, 299], scores[2], scores[3] = torch.nan, torch.nan, -torch.inf
    values, *_ = engine.top_scores(scores, 2, None, normalised)
    assert values.isnan().all(1)[:3].tolist() == [False, True, True]
    assert not normalised or (values[3] == -torch.inf).all()
