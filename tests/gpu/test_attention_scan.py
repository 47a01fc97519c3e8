"""Decoders with attention on a GPU: the cuda engine against `reference` in float64. Skipped without a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.kernels.attention_cuda_cases import CELLS, PLAIN, SCORES, Case, cast, exact, make, results
from tests.kernels.cuda_cases import error
from tests.tolerances import RELATIVE
from unrolled.errors import UserError
from unrolled.kernels.attention import reference
from unrolled.kernels.attention.cuda import engine as cuda
from unrolled.kernels.attention.scan import attention_choice
from unrolled.nn.attention_decoder import AttentionDecoder

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")

WIDE: Case = {
    **PLAIN, "batch": 20, "steps": 12, "positions": 13, "hidden": 128, "keys": 64, "values": 96, "feed": 72,
    "mask": "ragged", "lengths": True,
}  # fmt: skip
GATED = [cell for cell in CELLS if cell not in ("rnn", "relu")]  # the engine refuses the others
TRANSLATOR: Case = {**WIDE, "batch": 180, "steps": 22, "positions": 20, "hidden": 512, "keys": 512, "values": 512}


@pytest.fixture(autouse=True)
def poisoned() -> Iterator[None]:
    """New memory holds NaN, so that what was not written is seen."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def check(case: Case) -> None:
    """Within the dtype's tolerance; where that is exceeded, no further off than `reference` at the same dtype."""
    job = make(case, "cuda")
    found, expected = results(*cast(job, case["dtype"]), cuda), exact(job)
    too_far = {}
    for name, value in found.items():
        assert value.dtype == case["dtype"], name
        assert value.isfinite().all(), name
        if (off := error(value, expected[name])) > RELATIVE[case["dtype"]]:
            too_far[name] = off
    if too_far:
        theirs = results(*cast(job, case["dtype"]), reference)
        for name, off in too_far.items():
            assert off <= error(theirs[name], expected[name]), name


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("cell", "luong", "score"), list(product(GATED, (False, True), SCORES)))
def test_equals_reference(cell: str, luong: bool, score: str, dtype: torch.dtype) -> None:
    """Outputs, states and all gradients: ragged sources and targets, dropout; Luong's form has input feeding."""
    check({**WIDE, "cell": cell, "luong": luong, "score": score, "dtype": dtype, "dropout": True})


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("cell", "score"), list(product(GATED, ("additive", "projected"))))
def test_a_gate_on_the_context(cell: str, score: str, dtype: torch.dtype) -> None:
    check({**WIDE, "cell": cell, "score": score, "dtype": dtype, "dropout": True, "gate": True})


@pytest.mark.parametrize("mask", [None, "one", "holes"])
@pytest.mark.parametrize("luong", [False, True])
def test_masks_and_odd_sizes(luong: bool, mask: str | None) -> None:
    for positions, steps, batch in ((1, 1, 1), (37, 5, 3), (200, 2, 7)):
        sizes = {"positions": positions, "steps": steps, "batch": batch, "keys": 520, "values": 264, "hidden": 40}
        check({**WIDE, **sizes, "luong": luong, "mask": mask, "lengths": False, "bias": False})


@pytest.mark.parametrize("luong", [False, True])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_error_is_no_larger_than_that_of_the_plain_loop(cell: str, luong: bool) -> None:
    """At the sizes of a translator, of the results and of every gradient, summed up: one may be worse by chance."""
    job = make({**TRANSLATOR, "cell": cell, "luong": luong, "dtype": torch.bfloat16}, "cuda")
    expected = exact(job)
    ours, theirs = (results(*cast(job, torch.bfloat16), engine) for engine in (cuda, reference))
    assert sum(error(ours[n], expected[n]) for n in ours) <= sum(error(theirs[n], expected[n]) for n in theirs)


@pytest.mark.parametrize("cell", GATED)
@pytest.mark.parametrize("luong", [False, True])
def test_ten_repeats_are_bit_identical(luong: bool, cell: str) -> None:
    job = make({**WIDE, "cell": cell, "luong": luong}, "cuda")
    first = results(*cast(job, torch.float16), cuda)
    for _ in range(10):
        again = results(*cast(job, torch.float16), cuda)
        assert all(torch.equal(first[name], again[name]) for name in first)


@pytest.mark.parametrize("form", ["bahdanau", "luong", "xu"])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_decoder_in_a_cuda_graph(cell: str, form: str) -> None:
    """Under autocast, from the module's call to its parameters' gradients; `auto` takes the engine."""
    decoder: Any = AttentionDecoder(24, 64, 48, cell=cell, form=form, feed_dropout=0.0).cuda()
    x, memory = torch.randn(5, 7, 24, device="cuda"), torch.randn(5, 9, 48, device="cuda", requires_grad=True)
    mask = torch.arange(9, device="cuda") < torch.tensor([[9], [1], [4], [9], [7]], device="cuda")
    lengths = torch.tensor([7, 2, 0, 5, 7], device="cuda")

    def step() -> tuple[Tensor, ...]:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            seen = decoder(x, memory, mask, lengths=lengths)
        return seen.output, *torch.autograd.grad(seen.output.float().pow(2).sum(), [memory, *decoder.parameters()])

    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert decoder.backend_for(x, memory, mask, lengths=lengths).engine == "cuda"
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
    for found, expected in zip(captured, step(), strict=True):
        assert error(found, expected) < RELATIVE[torch.bfloat16]


def test_the_choice_and_its_reason() -> None:
    half, _ = cast(make(WIDE, "cuda"), torch.float16)
    assert str(attention_choice(half)) == "cuda: the fastest engine that computes this"
    full, _ = cast(make(WIDE, "cuda"), torch.float32)
    assert attention_choice(full).engine == "reference"
    with pytest.raises(UserError, match="The engine 'cuda' cannot do this: it computes in float16 or bfloat16"):
        attention_choice(full, "cuda")
