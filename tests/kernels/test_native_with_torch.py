"""The native engine with torch: operators, compile, autocast, second derivatives, threads and processes."""

from __future__ import annotations

import copy
import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import unrolled
from tests.kernels.test_native import cast, results, small
from tests.tolerances import assert_close
from unrolled.cells import BuiltIn
from unrolled.errors import UserError
from unrolled.kernels import ENGINES, scan_traced

pytestmark = [
    pytest.mark.skipif("native" not in ENGINES, reason="the native engine is not built here"),
    pytest.mark.usefixtures("nan_buffers"),
]


class TestWithTorch:
    def test_the_operator_with_lengths_passes_torchs_own_checks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Padding of a saved buffer is never written, so its values are not compared; see test_operators.py."""
        from unrolled.kernels import native_buffers
        from unrolled.kernels.recurrence import native

        monkeypatch.setattr(native_buffers, "fill_with_nan", False)
        inputs = native.operator_inputs(small(lengths=True, norm=True, time_major=True))
        tests = ["test_schema", "test_faketensor", "test_autograd_registration"]
        torch.library.opcheck(torch.ops.unrolled.recurrence.default, (*inputs, True), test_utils=tests)

    def test_twice_through_one_graph(self) -> None:
        job = small()
        output, _ = ENGINES["native"].run(job)
        first = torch.autograd.grad(output.sum(), job.x, retain_graph=True)[0]
        other = small()  # in between, a run that would overwrite what the first has saved
        ENGINES["native"].run(other)[0].sum().backward()
        assert torch.equal(first, torch.autograd.grad(output.sum(), job.x)[0])

    @pytest.mark.parametrize(
        "changes",
        [
            {},
            {"kind": "lstm", "norm": True, "lengths": True},
            {"kind": "gru", "resets": "learned"},
            {"kind": "rnn", "reverse": True},
        ],
        ids=str,
    )
    def test_second_derivatives_are_the_references(self, changes: dict[str, Any]) -> None:
        found = []
        for engine in ("native", "reference"):
            torch.manual_seed(0)
            job = small(**changes)
            assert isinstance(job.cell, BuiltIn)
            leaves = [t for t in (job.x, job.cell.weight_ih, job.cell.weight_hh, *job.state) if t.requires_grad]
            output, final = ENGINES[engine].run(job)
            loss = output.pow(2).sum() + final[-1].sum()
            first = torch.autograd.grad(loss, leaves, create_graph=True)
            second = torch.autograd.grad([g.pow(2).sum() for g in first], leaves)
            found.append([*first, *second])
        assert len(found[0]) >= 6
        for mine, other in zip(*found, strict=True):
            assert_close(mine, other)

    def test_inputs_that_depend_on_each_other(self) -> None:
        """An initial state made from the input: what flows through it is not counted twice."""
        found = []
        for engine in ("native", "reference"):
            job = small()
            x = torch.linspace(-1, 1, job.x.numel()).view_as(job.x).requires_grad_()
            state = tuple(x[:, 0, :1].expand_as(s) * 2 for s in job.state)
            output, _ = ENGINES[engine].run(replace(job, x=x, state=state))
            (first,) = torch.autograd.grad(output.pow(3).sum(), x, create_graph=True)
            found += [first, *torch.autograd.grad(first.pow(2).sum(), x)]
        assert_close(found[0], found[2])
        assert_close(found[1], found[3])

    def test_a_trace_has_no_second_derivative_and_says_so(self) -> None:
        *_, trace = ENGINES["native"].run_traced(job := small())
        (gradient,) = torch.autograd.grad(trace.output.sum(), job.x, create_graph=True)
        with pytest.raises(UserError, match=r"no second derivative\. Use backend='reference'"):
            torch.autograd.grad(gradient.sum(), job.x)

    def test_autocast_gives_its_dtype(self) -> None:
        layer = unrolled.GRU(3, 5, backend="native", layer_norm=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output, state = layer(torch.randn(4, 2, 3))
        assert output.dtype == state.dtype == torch.bfloat16

    @pytest.mark.parametrize("hidden", [1, 5, 16, 33])
    @pytest.mark.parametrize("ragged", [False, True])
    def test_autocast_is_near(self, hidden: int, ragged: bool) -> None:
        """bfloat16 keeps 8 bits, and an LSTM that is unrolled about as many; whatever its products are computed in."""
        exact, x = (
            unrolled.LSTM(7, hidden, batch_first=True, bidirectional=True, backend="native"),
            torch.randn(9, 40, 7),
        )
        lengths = torch.randint(0, 41, (9,)) if ragged else None
        found = []
        for narrow in (False, True):
            layer = copy.deepcopy(exact)
            read = x.clone().requires_grad_()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=narrow):
                output, (h_n, c_n) = layer(read, lengths=lengths)
            assert output.dtype == (torch.bfloat16 if narrow else torch.float32)
            loss = sum((v.float() * torch.linspace(-1, 1, v.numel()).view(v.shape)).sum() for v in (output, h_n, c_n))
            assert isinstance(loss, Tensor)
            loss.backward()  # type: ignore[no-untyped-call]
            assert read.grad is not None
            gradients = [p.grad.flatten() for p in layer.parameters() if p.grad is not None]
            found.append([output.float().flatten(), read.grad.flatten(), torch.cat(gradients)])
        for what, ours, expected in zip(("output", "input", "weights"), found[1], found[0], strict=True):
            assert (ours - expected).norm() <= 0.02 * expected.norm(), what

    def test_autocast_multiplies_in_bfloat16_where_the_processor_does(self) -> None:
        from unrolled.kernels.native_core import NARROW

        layer, x = unrolled.LSTM(7, 20, backend="native"), torch.randn(5, 3, 7)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            narrow = layer(x)[0]
        assert torch.equal(narrow, layer(x)[0].bfloat16()) != NARROW

    def test_several_python_threads_at_once(self) -> None:
        job = small(steps=40, batch=33, hidden=64)
        expected = [v.detach().clone() for v in results(job, "native").values()]
        wrong: list[int] = []

        def work() -> None:
            for _ in range(5):
                got = results(cast(job, torch.float32), "native").values()
                if not all(torch.equal(a, b) for a, b in zip(got, expected, strict=True)):
                    wrong.append(1)

        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert not wrong

    def test_a_forked_child_does_not_hang(self) -> None:
        code = (
            "import os, torch, unrolled, signal\n"
            "layer, x = unrolled.LSTM(64, 64, backend='native'), torch.randn(50, 32, 64)\n"
            "with torch.no_grad(): expected = layer(x)[0]\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    signal.alarm(60)\n"
            "    with torch.no_grad(): output = layer(x)[0]\n"
            "    same = torch.allclose(output[-1], expected[-1], atol=1e-6)  # little: torch itself may hang on more\n"
            "    os._exit(0 if same else 1)\n"
            "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0\n"
        )
        subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_scan_traced_reaches_it() -> None:
    job = small()
    *_, trace = scan_traced(job.cell, job.x, job.state, backend="native")
    assert set(trace.gates) == {"i", "f", "g", "o"}
