"""Attending decoders on the native engine against `reference` in float64: results and every gradient."""

from __future__ import annotations

import zlib
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests import warm
from tests.kernels.pairs import pairwise
from tests.tolerances import assert_close
from unrolled.cells import BahdanauCell, BuiltIn, GRUCell, LSTMCell, LuongCell, RNNCell, Score
from unrolled.errors import UserError
from unrolled.kernels.attention.scan import (
    ATTENTION_ENGINES,
    Attended,
    AttentionJob,
    attention_choice,
    attention_scan,
    checked_job,
)
from unrolled.nn.attention_decoder import AttentionDecoder

pytestmark = [
    pytest.mark.skipif("native" not in ATTENTION_ENGINES, reason="the native engine is not built here"),
    pytest.mark.usefixtures("nan_buffers"),
]

CHOICES: dict[str, tuple[Any, ...]] = {
    "kind": ("rnn", "relu", "lstm", "gru", "gru_before"),
    "luong": (False, True),
    "score": ("additive", "dot", "scaled", "projected", "multihead"),
    "batch": (1, 2, 5, 33),
    "steps": (1, 2, 13),
    "positions": (1, 7, 17, 40),
    "hidden": (1, 3, 16, 17, 70),
    "values": (1, 5, 32, 66),
    "feed": (1, 16, 19),
    "mask": (None, "ragged", "holes"),
    "lengths": (False, True),
    "hidden_mask": (False, True),
    "dropout": (False, True),
    "bias": (True, False),
}


def make(case: dict[str, Any]) -> AttentionJob:
    """A job in float64, drawn for a case."""
    kind, batch, steps, hidden = case["kind"], case["batch"], case["steps"], case["hidden"]
    drawn = torch.Generator().manual_seed(zlib.crc32(repr(case).encode()))
    wide = {"rnn": 1, "relu": 1, "lstm": 4, "gru": 3, "gru_before": 3}[kind] * hidden

    def normal(*shape: int, scale: float = 0.3) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=drawn) * scale

    def dropped(*shape: int) -> Tensor:
        return (torch.rand(shape, generator=drawn) < 0.7).double() / 0.7

    given: dict[str, Any] = {"weight_ih": normal(wide, 2), "weight_hh": normal(wide, hidden, scale=0.5 / hidden**0.5)}
    if case["bias"]:
        given |= {"bias_ih": normal(wide), "bias_hh": normal(wide)}
    if case["hidden_mask"]:
        given["hidden_mask"] = dropped(batch, hidden)
    if kind == "relu":
        given["activation"] = torch.relu
    if kind == "gru_before":
        given["reset_after"] = False
    cell = {"lstm": LSTMCell, "gru": GRUCell, "gru_before": GRUCell}.get(kind, RNNCell)(**given)
    positions, values = case["positions"], case["values"]
    heads = 3 if case["score"] == "multihead" else 1
    context = 7 if case["score"] == "multihead" else values  # of heads, W_o makes it another
    values *= heads
    keys = {"additive": 20, "projected": 9, "multihead": 15}.get(case["score"], hidden)
    score = Score(scale={"scaled": hidden**-0.5, "projected": 0.5}.get(case["score"], 1.0))
    if case["score"] in ("additive", "projected", "multihead"):
        score = replace(score, weight_query=normal(keys, hidden))
    if case["score"] == "additive":
        score = replace(score, vector=normal(keys, scale=1.0))
    if case["score"] == "multihead":
        score = replace(score, heads=heads, weight_out=normal(context, values, scale=values**-0.5))
        if case["bias"]:
            score = replace(score, bias_query=normal(keys), bias_out=normal(context))
    feed = case["feed"] if case["luong"] else context
    attending: Any = BahdanauCell(cell, score, normal(wide, feed, scale=0.5 / feed**0.5))
    if case["luong"]:
        mix = normal(feed, context + hidden, scale=1 / (context + hidden) ** 0.5)
        attending = LuongCell(cell, score, attending.weight_feed, mix, normal(feed) if case["bias"] else None)
    mask = None
    if case["mask"] == "ragged":
        mask = torch.arange(positions) < torch.randint(0, positions + 1, (batch, 1), generator=drawn)
    elif case["mask"] == "holes":
        mask = torch.rand(batch, positions, generator=drawn) < 0.6
    lengths = torch.randint(0, steps + 1, (batch,), generator=drawn) if case["lengths"] else None
    job = AttentionJob(
        attending,
        normal(batch, steps, wide, scale=0.7),
        normal(batch, positions, keys, scale=1.0),
        normal(batch, positions, values, scale=1.0),
        mask,
        tuple(normal(batch, size) for size in attending.state_sizes),
        lengths=lengths,
        feed_mask=dropped(batch, steps, feed) if case["dropout"] else None,
        mix_mask=dropped(batch, steps, context + hidden) if case["dropout"] and case["luong"] else None,
    )
    return checked_job(job)


def cast(job: AttentionJob, dtype: torch.dtype) -> tuple[AttentionJob, dict[str, Tensor]]:
    """The same job in another dtype, and everything in it that has a gradient, by name."""
    leaves: dict[str, Tensor] = {}

    def new(name: str, value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        copied = value.detach().to(dtype, copy=True)
        if not name.endswith("_mask"):
            leaves[name] = copied.requires_grad_()
        return copied

    def remade(thing: Any) -> Any:
        return replace(thing, **{f.name: new(f.name, getattr(thing, f.name)) for f in fields(thing)})

    assert isinstance(job.cell.cell, BuiltIn)
    cell = replace(remade(job.cell), cell=remade(job.cell.cell), score=remade(job.cell.score))
    state = tuple(new(f"{name}_0", s) for name, s in zip(job.cell.state_names, job.state, strict=True))
    leaves.pop("weight_ih", None)  # those of the projection, which is done
    leaves.pop("bias_ih", None)
    return replace(remade(job), cell=cell, state=state), leaves


def results(job: AttentionJob, leaves: dict[str, Tensor], engine: str) -> dict[str, Tensor]:
    """Everything a decoder gives, and gradients of a loss that weighs all of it differently."""
    seen: Attended = ATTENTION_ENGINES[engine].run(job)
    parts = {"output": seen.output, "context": seen.context, "weights": seen.weights}
    parts |= {f"final {name}": s for name, s in zip(job.cell.state_names, seen.state, strict=True)}
    loss = sum((v * torch.linspace(-1, 1, v.numel(), dtype=v.dtype).view(v.shape)).sum() for v in parts.values())
    assert isinstance(loss, Tensor)
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
        parts[f"gradient of {name}"] = torch.zeros_like(leaf) if gradient is None else gradient
    return parts


def compare(job: AttentionJob) -> None:
    expected = results(*cast(job, torch.float64), "reference")
    got = results(*cast(job, torch.float32), "native")
    for name, value in expected.items():
        assert_close(got[name], value.float(), name)


CASES = list(pairwise(CHOICES, seed=0))


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_equals_reference(case: dict[str, Any]) -> None:
    compare(make(case))


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_autocast_is_near(case: dict[str, Any]) -> None:
    """bfloat16 keeps 8 bits: what is multiplied is within 0.4 %, and so is, about, all that follows, taken together.

    One number alone can be a small sum of large ones, of which no digit is right. The furthest of these cases: 0.3 %
    (results) and 0.5 % (gradients); a relu that is on the one side and off on the other has no such bound.
    """
    job = make(case)
    expected = results(*cast(job, torch.float64), "reference")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = results(*cast(job, torch.float32), "native")
    for gradients in (False, True):
        names = [name for name in expected if name.startswith("gradient") == gradients]
        assert all(got[name].dtype == torch.float32 for name in names)
        ours, exact = (torch.cat([values[name].flatten().double() for name in names]) for values in (got, expected))
        if not (gradients and case["kind"] == "relu"):
            assert (ours - exact).norm() <= 0.01 * exact.norm()


def test_autocast_multiplies_in_bfloat16_where_the_processor_does() -> None:
    from unrolled.kernels.native_core import NARROW

    job = make(USUAL)
    wide = results(*cast(job, torch.float32), "native")["output"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow = results(*cast(job, torch.float32), "native")["output"]
    with torch.autocast("cpu", dtype=torch.float16):
        assert torch.equal(results(*cast(job, torch.float32), "native")["output"], wide)
    assert torch.equal(narrow, wide) != NARROW


PLAIN: dict[str, Any] = {name: values[0] for name, values in CHOICES.items()}
USUAL = {**PLAIN, "kind": "lstm", "luong": True, "batch": 5, "steps": 6, "positions": 7, "hidden": 17, "values": 32}


@pytest.mark.parametrize("threads", [2, 3])
def test_threads(threads: int) -> None:
    """Rows that do not divide, ragged both ways."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for kind in CHOICES["kind"]:
            case = {**USUAL, "kind": kind, "batch": 20, "hidden": 70, "steps": 13, "mask": "ragged", "lengths": True}
            compare(make({**case, "luong": kind != "gru"}))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("luong", [False, True])
@pytest.mark.parametrize("score", CHOICES["score"])
def test_nan_in_padding_does_not_matter(luong: bool, score: str) -> None:
    job = make({**USUAL, "luong": luong, "score": score, "mask": "ragged", "lengths": True})
    assert job.mask is not None
    assert job.active is not None
    clean = results(*cast(job, torch.float32), "native")
    nan = float("nan")
    dirty = replace(
        job,
        gates_x=torch.where(job.active[..., None], job.gates_x, nan),
        keys=torch.where(job.mask[..., None], job.keys, nan),
        values=torch.where(job.mask[..., None], job.values, nan),
    )
    for name, value in results(*cast(dirty, torch.float32), "native").items():
        assert torch.equal(value, clean[name]), name


@pytest.mark.parametrize("score", CHOICES["score"])
def test_nan_stays_in_its_row(score: str) -> None:
    job, _ = cast(make({**USUAL, "score": score}), torch.float32)
    keys = job.keys.detach().clone()
    keys[1, 2] = float("nan")
    seen = ATTENTION_ENGINES["native"].run(replace(job, keys=keys))
    expected = ATTENTION_ENGINES["reference"].run(replace(job, keys=keys))
    assert seen.output[1].isnan().all()
    for got, right in zip(seen[:3], expected[:3], strict=True):
        assert torch.equal(got.isnan(), right.isnan())


def test_scores_of_any_size() -> None:
    """Softmax neither overflows nor loses the largest."""
    job, _ = cast(make({**USUAL, "score": "dot", "positions": 40}), torch.float32)
    job = replace(job, keys=job.keys.detach() * 1e4)
    seen = ATTENTION_ENGINES["native"].run(job)
    assert_close(seen.weights, ATTENTION_ENGINES["reference"].run(job).weights)
    assert_close(seen.weights.sum(-1), torch.ones(5, 6))


@pytest.mark.parametrize("isa", ["plain", "avx2", "avx512", "neon", "neon_dot"])
def test_every_instruction_set(isa: str) -> None:
    """The same comparison in a process that is told which kernels to use."""
    from unrolled.kernels import _native

    if isa not in _native.isas():
        pytest.skip(f"this processor has no {isa}")
    code = (
        "from tests.kernels.test_attention import CASES, make, compare\n"
        "from unrolled.kernels import _native\n"
        f"assert _native.isa() == {isa!r}\n"
        "for case in CASES[::4]: compare(make(case))\n"
    )
    warm.python("-c", code, env={"UNROLLED_ISA": isa}, check=True)


class TestWithTorch:
    def job(self, **changes: Any) -> tuple[AttentionJob, dict[str, Tensor]]:
        return cast(make({**USUAL, **changes}), torch.float32)

    def test_the_operators_pass_torchs_own_checks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from unrolled.kernels import native_buffers
        from unrolled.kernels.attention import native

        for changes in ({}, {"luong": False, "kind": "gru", "score": "dot", "mask": "ragged", "bias": False}):
            inputs = native.operator_inputs(self.job(**changes)[0])
            monkeypatch.setattr(native_buffers, "fill_with_nan", False)
            torch.library.opcheck(torch.ops.unrolled.attention.default, (*inputs, True))

    def test_compile_in_one_graph(self) -> None:
        decoder = AttentionDecoder(3, 5, 6, cell="lstm", form="luong", backend="native")
        x, memory = torch.randn(2, 4, 3, requires_grad=True), torch.randn(2, 7, 6)

        def run(x: Tensor) -> Tensor:
            output: Tensor = decoder(x, memory).output
            return output

        with torch._dynamo.config.patch(allow_rnn=True):
            output = torch.compile(run, fullgraph=True, backend="aot_eager")(x)
        expected = run(x)
        assert torch.equal(output, expected)
        got = torch.autograd.grad(output.sum(), [x, *decoder.parameters()])
        for mine, right in zip(got, torch.autograd.grad(expected.sum(), [x, *decoder.parameters()]), strict=True):
            assert_close(mine, right)

    def test_twice_through_one_graph(self) -> None:
        job, leaves = self.job()
        output = ATTENTION_ENGINES["native"].run(job).output
        first = torch.autograd.grad(output.sum(), leaves["keys"], retain_graph=True)[0]
        ATTENTION_ENGINES["native"].run(self.job()[0]).output.sum().backward()
        assert torch.equal(first, torch.autograd.grad(output.sum(), leaves["keys"])[0])

    @pytest.mark.parametrize(
        "changes", [{}, {"luong": True, "lengths": True, "mask": "holes", "dropout": True}], ids=str
    )
    def test_second_derivatives_are_the_references(self, changes: dict[str, Any]) -> None:
        job, leaves = self.job(**changes)
        found = []
        for engine in ("native", "reference"):
            seen = ATTENTION_ENGINES[engine].run(job)
            loss = seen.output.pow(2).sum() + seen.weights.pow(2).sum() + seen.state[-1].sum()
            first = torch.autograd.grad(loss, list(leaves.values()), create_graph=True)
            second = torch.autograd.grad([g.sum() for g in first], list(leaves.values()))
            found.append([*first, *second])
        for mine, other in zip(*found, strict=True):
            assert_close(mine, other)

    def test_without_gradients_the_same(self) -> None:
        job, _ = self.job(lengths=True, mask="holes", dropout=True)
        with torch.no_grad():
            plain = ATTENTION_ENGINES["native"].run(job)
        for a, b in zip(plain[:3], ATTENTION_ENGINES["native"].run(job)[:3], strict=True):
            assert torch.equal(a, b)


class TestChoice:
    def refusal(self, job: AttentionJob) -> str:
        reason: str | None = ATTENTION_ENGINES["native"].refuses(job)
        assert reason is not None
        return reason

    def test_refused_jobs_have_a_reason(self) -> None:
        job, _ = cast(make(USUAL), torch.float32)
        assert ATTENTION_ENGINES["native"].refuses(job) is None
        assert self.refusal(cast(job, torch.float64)[0]) == "it computes in float32, got torch.float64"
        lstm = job.cell.cell
        assert isinstance(lstm, LSTMCell)

        def with_cell(**changes: Any) -> AttentionJob:
            return replace(job, cell=replace(job.cell, cell=replace(lstm, **changes)))

        assert self.refusal(with_cell(norm_hh=torch.ones(68))) == "its decoders have no norm_hh"
        assert self.refusal(with_cell(weight_peephole=torch.ones(3, 17))) == "its decoders have no weight_peephole"
        assert "usual activations only" in self.refusal(with_cell(activation=torch.relu))
        several = replace(job, cell=replace(job.cell, score=replace(job.cell.score, heads=2)))
        assert self.refusal(several) == "it has additive scores of one head"
        assert "on a CPU" in self.refusal(replace(job, gates_x=job.gates_x.to("meta")))
        assert self.refusal(replace(job, gates_x=job.gates_x[:0])) == "the batch is empty"
        drawn = torch.ones(5, 6, 1, requires_grad=True)
        assert self.refusal(replace(job, feed_mask=drawn)) == "it has no gradient for masks"
        with torch.autocast("cpu"):
            assert ATTENTION_ENGINES["native"].refuses(replace(job, gates_x=job.gates_x.bfloat16())) is None

    def test_by_name_it_raises(self) -> None:
        job, _ = cast(make(USUAL), torch.float64)
        message = "The engine 'native' cannot do this: it computes in float32, got torch.float64."
        with pytest.raises(UserError, match=message):
            attention_choice(job, "native")
        assert attention_choice(job).engine == "reference"

    def test_short_jobs_use_the_loop(self) -> None:
        job, _ = cast(make(USUAL), torch.float32)
        assert attention_choice(job).engine == "native"
        short, _ = cast(make({**USUAL, "steps": 1}), torch.float32)
        assert str(attention_choice(short)) == "reference: not native: torch is faster for few steps"
        assert attention_choice(short, "native").engine == "native"

    def test_attention_scan_reaches_it(self) -> None:
        job, _ = cast(make({**USUAL, "mask": "ragged"}), torch.float32)
        seen = attention_scan(job.cell, job.gates_x, job.keys, job.values, job.mask, job.state, backend="native")
        assert torch.equal(seen.output, ATTENTION_ENGINES["native"].run(job).output)
