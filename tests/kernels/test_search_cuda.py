"""The GPU kernels of searches without a GPU: compiled by NVRTC, and run on a simulated GPU against torch."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import math
import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.kernels.compiled import gpu_report
from tests.kernels.simulator import OUTCOMES, library
from tests.search.tokens.test_steady_beam import COVERED, RANKINGS, Table, assert_same, result_or_error
from unrolled.kernels.cuda import launch
from unrolled.kernels.cuda.compiler import Program
from unrolled.kernels.cuda.launch import IndependentBlocks
from unrolled.kernels.search import steps
from unrolled.kernels.search.cuda import constants, engine, plan
from unrolled.kernels.search.cuda.arguments import DOUBLES, INTEGERS, POINTERS, SearchArguments
from unrolled.search import Beam, Limits, Sampling
from unrolled.search.tokens.sampling import drawn

needs_nvrtc = pytest.mark.skipif(
    importlib.util.find_spec("cuda") is None, reason="cuda-bindings and nvidia-cuda-nvrtc are not installed"
)
needs_gcc = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here")
START = 0


@needs_nvrtc
@pytest.mark.parametrize("program", [plan.BEAM_STEP, plan.TRACE_BACK, plan.DRAW], ids=lambda one: one.source)
def test_every_kernel_compiles_and_stays_in_registers(program: Program) -> None:
    assert re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill", gpu_report(program, "sm_90")) == [("0", "0")]


def test_kernels_and_python_share_their_constants_and_arguments() -> None:
    assert {"WARPS", "MOST_FORBIDDEN"} <= set(re.findall(r"constexpr int (\w+) =", constants.header()))
    assert ctypes.sizeof(SearchArguments) == 8 * (len(POINTERS) + len(INTEGERS) + len(DOUBLES))


@functools.cache
def build(program: Program) -> ctypes.CDLL:
    name = program.source.removesuffix(".cu")
    return library(
        "one_simulated_kernel.cpp", plan.sources(), f'-DKERNEL_SOURCE="{program.source}"', f"-DKERNEL_NAME={name}"
    )


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """A simulated GPU with which CPU tensors are computed; counts the launches of each kernel."""
    torch.use_deterministic_algorithms(True)  # new memory holds NaN
    launches: dict[str, int] = {}

    def run(program: Program, name: str, how: IndependentBlocks, given: Any, device: torch.device) -> None:
        launches[name] = launches.get(name, 0) + 1
        outcome = build(program).launch_kernel(ctypes.byref(given), how.blocks, how.shared_bytes, launches[name])
        assert outcome == 0, OUTCOMES[outcome]

    monkeypatch.setattr(launch, "run", run)
    monkeypatch.setattr(engine, "ready", lambda device: True)
    yield launches
    torch.use_deterministic_algorithms(False)


@needs_gcc
@pytest.mark.parametrize("seed", range(24))
def test_a_search_with_the_kernels_is_the_search_with_a_host(seed: int, simulated: dict[str, int]) -> None:
    """Bit for bit: ties, prefixes, margins, limits of each row, rows that end early, rows without an end."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    vocabulary, rows, size = draw(2, 9), draw(1, 5), draw(1, 5)
    table = 2 * torch.randn(vocabulary, vocabulary, vocabulary, generator=generator)
    table = table.round() if seed % 2 else table
    end = draw(0, vocabulary - 1)
    table[..., end] += draw(-2, 2)
    ranking = COVERED[seed % 2] if seed % 5 == 0 else RANKINGS[seed % 4]
    stop: Any = "safe" if seed % 3 else "enough"
    beam = Beam(size, draw(1, size), ranking, stop, [None, 0.5, 3.0][seed % 3])
    others = [token for token in range(vocabulary) if token != end]
    prefixes = [[draw(0, vocabulary - 1) for _ in range(draw(0, 3))] for _ in range(rows)]
    limits = Limits(
        [draw(1, 12) for _ in range(rows)],
        end,
        draw(0, 3),
        others[:1] if seed % 4 == 0 and len(others) > 1 else (),
        prefixes if seed % 3 == 1 else None,
    )
    look = torch.rand(vocabulary, 3, generator=generator).softmax(-1)
    model = Table(table, look, normalised=bool(seed % 2))
    given: dict[str, Any] = {"start": START, "beam": beam, "memory": torch.arange(rows) % vocabulary}
    found = [result_or_error(model, rows, limits, **given, attention=True, graph=graph) for graph in ("off", "steady")]
    if isinstance(found[0], str) or isinstance(found[1], str):
        assert found[0] == found[1]
    else:
        assert_same(found[0], found[1])
        assert simulated["beam_step"] > simulated["trace_back"] == 1


@needs_gcc
def test_the_way_back_is_that_of_torch(simulated: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    length, rows, width, best = 7, 50, 3, 3
    chosen, tokens, origins = (torch.randint(n, (length, rows, m)) for n, m in ((6, width), (100, 6), (width, 6)))
    times, starts = torch.randint(length, (rows, best)), torch.randint(width, (rows, best))
    found = steps.trace_back(chosen, tokens, origins, times, starts)
    monkeypatch.setattr(engine, "ready", lambda device: False)
    for one, other in zip(found, steps.trace_back(chosen, tokens, origins, times, starts), strict=True):
        assert torch.equal(one, other)


@needs_gcc
@pytest.mark.parametrize("temperature", [0.0, 0.001, 0.5, 1.0, 3.0])
@pytest.mark.parametrize(("rows", "vocabulary"), [(5, 1), (40, 7), (9, 129), (4, 1000)])
def test_drawn_tokens_are_those_of_torch(
    rows: int, vocabulary: int, temperature: float, simulated: dict[str, int]
) -> None:
    torch.manual_seed(vocabulary)
    log_probs = (3 * torch.randn(rows, vocabulary + 2)).log_softmax(-1)[:, :vocabulary]
    log_probs[0] = -torch.inf
    log_probs[1, -1] = torch.nan
    log_probs[2, :] = log_probs[2, 0]  # ties
    forbidden = torch.tensor([2, 5]) if vocabulary > 6 else torch.zeros(0, dtype=torch.int64)
    end = vocabulary - 1 if vocabulary > 6 else None
    uniform = torch.rand(3, rows, dtype=torch.float64)
    uniform[1, 3] = 0.0
    slot, written = torch.tensor([1]), torch.tensor([4])
    tokens, picked = torch.zeros(3, rows, dtype=torch.int64), torch.zeros(3, rows)
    following = torch.zeros(rows, dtype=torch.int64)
    draw = engine.Draw(
        temperature,
        end=end,
        min_tokens=5,
        forbidden=forbidden,
        uniform=uniform,
        slot=slot,
        written=written,
        drawn=tokens,
        picked=picked,
        next=following,
    )
    draw(log_probs)
    allowed = log_probs.clone()
    allowed[:, forbidden] = -torch.inf
    if end is not None:
        allowed[:, end] = -torch.inf
    expected = drawn(Sampling(temperature), allowed, None, uniform[1])
    expected[allowed.isnan().any(-1)] = -1
    assert torch.equal(tokens[1], expected)
    assert torch.equal(following, expected.clamp(min=0))
    assert torch.equal(picked[1], log_probs.gather(1, following[:, None])[:, 0]) or vocabulary == 1
    assert not tokens[0].any()
    assert math.isclose(float(tokens[1, 0]), -1)
