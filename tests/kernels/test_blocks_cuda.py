"""The GPU kernels of Transformer steps without a GPU: compiled by NVRTC, and run on a simulated GPU against torch."""

from __future__ import annotations

import copy
import ctypes
import functools
import importlib.util
import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.kernels.compiled import gpu_report
from tests.kernels.simulator import OUTCOMES, library
from unrolled.kernels.blocks.cuda import constants, engine, plan
from unrolled.kernels.blocks.cuda.arguments import DOUBLES, INTEGERS, POINTERS, BlockArguments
from unrolled.kernels.cuda import launch
from unrolled.kernels.cuda.compiler import Program
from unrolled.kernels.cuda.launch import IndependentBlocks
from unrolled.nn.transformer import TransformerDecoder, TransformerEncoder

needs_nvrtc = pytest.mark.skipif(
    importlib.util.find_spec("cuda") is None, reason="cuda-bindings and nvidia-cuda-nvrtc are not installed"
)
needs_gcc = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here")
PROGRAMS = {
    "attention": plan.attend_program(torch.bfloat16, 64, 1),
    "attention, wide": plan.attend_program(torch.float32, 64, 8),
    "attention, large heads": plan.attend_program(torch.float32, 128, 2),
    "norm": plan.add_norm_program(torch.bfloat16),
    "norm, wide": plan.add_norm_program(torch.float32),
}
ROUNDING = {torch.float32: 1e-5, torch.bfloat16: 2**-7, torch.float16: 2**-9}


@needs_nvrtc
@pytest.mark.parametrize("which", PROGRAMS)
def test_every_kernel_compiles_and_stays_in_registers(which: str) -> None:
    assert re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill", gpu_report(PROGRAMS[which], "sm_90")) == [
        ("0", "0")
    ]


def test_kernels_and_python_share_their_constants_and_arguments() -> None:
    assert {"WARPS", "LANES"} <= set(re.findall(r"constexpr int (\w+) =", constants.header()))
    assert ctypes.sizeof(BlockArguments) == 8 * (len(POINTERS) + len(INTEGERS) + len(DOUBLES))


@functools.cache
def build(program: Program) -> ctypes.CDLL:
    names = [f'-DKERNEL_SOURCE="{program.source}"', f"-DKERNEL_NAME={program.source.removesuffix('.cu')}"]
    return library("one_simulated_kernel.cpp", plan.sources(), *program.defines, *names)


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A simulated GPU with which CPU tensors are computed; the names of the kernels that ran."""
    torch.use_deterministic_algorithms(True)  # new memory holds NaN
    launches: list[str] = []

    def run(program: Program, name: str, how: IndependentBlocks, given: Any, device: torch.device) -> None:
        launches.append(name)
        outcome = build(program).launch_kernel(ctypes.byref(given), how.blocks, how.shared_bytes, len(launches))
        assert outcome == 0, OUTCOMES[outcome]

    monkeypatch.setattr(launch, "run", run)
    monkeypatch.setattr(engine, "ready", lambda device: True)
    yield launches
    torch.use_deterministic_algorithms(False)


def expected(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """(R, N, d), (R, N, S, d) twice and (R, S) → (R, N·d), in float64."""
    scores = (query.double()[:, :, None] @ keys.double().mT)[:, :, 0] * query.shape[-1] ** -0.5
    weights = scores.masked_fill(~mask[:, None], -torch.inf).softmax(-1)
    seen: Tensor = (weights[:, :, None] @ values.double())[:, :, 0].flatten(1)
    return seen


@needs_gcc
@pytest.mark.parametrize(
    ("dtype", "size"), [(torch.float32, 64), (torch.bfloat16, 64), (torch.float16, 8), (torch.bfloat16, 256)]
)
@pytest.mark.parametrize(("inputs", "width", "places"), [(2, 3, 9), (1, 1, 70), (3, 1, 530)])
@torch.no_grad()
def test_attention_to_past_steps(
    inputs: int, width: int, places: int, dtype: torch.dtype, size: int, simulated: list[str]
) -> None:
    """Each hypothesis sees the keys of its ancestors; places that were not reached hold NaN."""
    torch.manual_seed(places)
    heads, rows = 2, inputs * width
    kept = torch.randn(2, inputs, heads, width, places, size).to(dtype)
    position = torch.randint(places, (rows,))
    position[-1] = 0
    ancestors = torch.randint(width, (rows, places))
    kept = kept.where(torch.arange(places)[:, None] < int(position.max()), torch.nan)
    new = torch.randn(rows, 3 * heads * size).to(dtype)
    query, key, value = new.chunk(3, -1)
    keys, values = kept.clone()
    found = engine.attend(query, keys, values, (key, value), position, ancestors)
    row, place = torch.arange(rows)[:, None], torch.arange(places)
    seen = [
        one.permute(0, 2, 3, 1, 4)[row // width, ancestors, place].transpose(1, 2).clone() for one in kept
    ]  # (R, N, S, d)
    for one, now in zip(seen, (key, value), strict=True):
        one[torch.arange(rows), :, position] = now.reshape(rows, heads, size)
        one.nan_to_num_()
    right = expected(query.reshape(rows, heads, size), seen[0], seen[1], place <= position[:, None])
    torch.testing.assert_close(found.double(), right, rtol=ROUNDING[dtype], atol=ROUNDING[dtype])
    for one, before, now in zip((keys, values), kept, (key, value), strict=True):
        after = before.clone()
        for i in range(rows):
            after[i // width, :, i % width, position[i]] = now[i].reshape(heads, size)
        assert torch.equal(one.nan_to_num(), after.nan_to_num())


@needs_gcc
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_attention_to_a_memory(dtype: torch.dtype, simulated: list[str]) -> None:
    """Keys of all heads side by side, as a projection leaves them."""
    inputs, width, heads, places, size = 3, 2, 4, 21, 16
    memory = torch.randn(2, inputs, places, heads, size).to(dtype).transpose(2, 3)  # (B, N, S, d) with strides
    mask = torch.arange(places) < torch.tensor([[21], [1], [8]])
    query = torch.randn(inputs * width, heads * size).to(dtype)
    found = engine.attend(query, memory[0][:, :, None], memory[1][:, :, None], mask=mask)
    keys, values, seen = (one.repeat_interleave(width, 0) for one in (memory[0], memory[1], mask))
    right = expected(query.view(-1, heads, size), keys, values, seen)
    torch.testing.assert_close(found.double(), right, rtol=ROUNDING[dtype], atol=ROUNDING[dtype])


@needs_gcc
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("rows", "size"), [(1, 2), (9, 70), (17, 256), (3, 1030)])
@pytest.mark.parametrize("after", [True, False])
@torch.no_grad()
def test_a_sum_and_its_norm(rows: int, size: int, after: bool, dtype: torch.dtype, simulated: list[str]) -> None:
    x, added = torch.randn(rows, size), torch.randn(rows, size).to(dtype)
    norm = nn.LayerNorm(size)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    for one in (added, None):
        total, normed = engine.add_norm(x, one, norm.weight, norm.bias, norm.eps, dtype, after=after)
        exact = x + one if one is not None else x
        right = F.layer_norm(exact, (size,), norm.weight, norm.bias, norm.eps)
        torch.testing.assert_close(total, right if after else exact, rtol=1e-5, atol=1e-4)
        torch.testing.assert_close(normed.float(), right, rtol=ROUNDING[dtype], atol=1e-4)


@needs_gcc
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("final_norm", [True, False])
@pytest.mark.parametrize("cross", [True, False])
@torch.no_grad()
def test_steps_of_a_stack(
    norm_first: bool, final_norm: bool, cross: bool, simulated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several steps, with hypotheses replaced in between, give what torch's operators give."""
    torch.manual_seed(0)
    kind: Any = TransformerDecoder if cross else functools.partial(TransformerEncoder, causal=True)
    stack = kind(16, 2, 2, 512 if final_norm else 24, norm_first=norm_first, final_norm=final_norm).eval()
    for weight in stack.parameters():
        nn.init.normal_(weight, std=0.2)
    batch, width, length = 2, 3, 8
    state = stack.fixed_start(batch, width, length)
    if cross:
        started = stack.start(torch.randn(batch, 5, 16), torch.arange(5) < torch.tensor([[5], [2]]))
        state = state._replace(memory=started.memory, memory_mask=started.memory_mask)
    state = state._replace(
        position=state.position.repeat_interleave(width), ancestors=state.ancestors.repeat_interleave(width, 0)
    )
    other = copy.deepcopy(state)
    for _ in range(length):
        x, chosen = torch.randn(batch * width, 16), torch.randint(width, (batch, width))
        rows = (chosen + width * torch.arange(batch)[:, None]).flatten()
        one, state, _ = stack.fixed_step(x, state)
        with monkeypatch.context() as patch:
            patch.setattr(engine, "ready", lambda device: False)
            right, other, _ = stack.fixed_step(x, other)
        torch.testing.assert_close(one, right, rtol=1e-4, atol=1e-4)
        state = state._replace(ancestors=state.ancestors[rows], position=state.position[rows])
        other = other._replace(ancestors=other.ancestors[rows], position=other.position[rows])
    assert {"attend_step", "add_norm"} == set(simulated)
