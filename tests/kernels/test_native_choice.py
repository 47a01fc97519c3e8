"""The jobs that the native engine refuses, and those that `auto` leaves to torch."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

import unrolled
from tests import warm
from tests.kernels.test_native import cast, small
from unrolled import kernels
from unrolled.cells import LSTMCell
from unrolled.errors import UserError
from unrolled.kernels import ENGINES, ScanJob, choose

pytestmark = [
    pytest.mark.skipif("native" not in ENGINES, reason="the native engine is not built here"),
    pytest.mark.usefixtures("nan_buffers"),
]


class TestChoice:
    def refusal(self, job: ScanJob) -> str:
        reason: str | None = ENGINES["native"].refuses(job)
        assert reason is not None
        return reason

    def test_refused_jobs_have_a_reason(self) -> None:
        job = small()
        assert isinstance(job.cell, LSTMCell)
        assert self.refusal(cast(job, torch.float64)) == "it computes in float32, got torch.float64"
        softsign = replace(job.cell, activation=torch.nn.functional.softsign)
        assert "usual activations only" in self.refusal(replace(job, cell=softsign))
        assert "on a CPU" in self.refusal(replace(job, x=job.x.to("meta")))
        empty = replace(job, x=job.x[:0], state=tuple(s[:0] for s in job.state))
        assert self.refusal(empty) == "the batch is empty"

        class Own(LSTMCell):
            pass

        own = Own(**{f.name: getattr(job.cell, f.name) for f in fields(job.cell)})
        assert self.refusal(replace(job, cell=own)) == "it has no cell Own"
        mask = torch.ones(3, 5, requires_grad=True)
        assert self.refusal(replace(job, cell=replace(job.cell, hidden_mask=mask))) == "it has no gradient for masks"
        reasons: list[str] = []

        def inside(x: Tensor) -> Tensor:
            reasons.append(self.refusal(replace(job, x=x)))
            return x

        torch.func.vmap(inside)(job.x[None].detach())
        assert "torch.func" in reasons[0]

    def test_asked_by_name_for_what_it_cannot_do(self) -> None:
        job = cast(small(), torch.float64)
        with pytest.raises(UserError, match=r"The engine 'native' cannot do this: it computes in float32"):
            choose(job, "native")

    def test_every_option_but_other_activations(self) -> None:
        """docs/engines.md says what the engine runs; here each option of each layer is asked for by name."""
        x = torch.randn(5, 2, 3)
        shared: list[dict[str, Any]] = [
            *({"layer_norm": True}, {"variational_dropout": 0.2}, {"zoneout": 0.2}, {"dropconnect": 0.2}),
            *({"learned_state": True}, {"bias": False}, {"bidirectional": True}),
            *({"num_layers": 2, "dropout": 0.3}, {"num_layers": 2, "combine": "mix"}),
        ]
        own: dict[type[Any], list[dict[str, Any]]] = {
            unrolled.RNN: [{"nonlinearity": "tanh"}, {"nonlinearity": "relu"}],
            unrolled.LSTM: [{"peephole": "current"}, {"peephole": "previous"}, {"proj_size": 2}],
            unrolled.GRU: [{"reset_after": True}, {"reset_after": False}],
        }
        for kind, options in own.items():
            for option in (*shared, *options):
                layer = kind(3, 4, backend="native", **option)
                assert layer.backend_for(x).engine == "native"
                layer(x)[0].sum().backward()
        for refused in (
            lambda: unrolled.RNN(3, 4, nonlinearity="softplus", backend="native"),
            lambda: unrolled.LSTM(3, 4, activation="relu", backend="native"),
            lambda: unrolled.GRU(3, 4, gate_activation="hardsigmoid", backend="native"),
        ):
            with pytest.raises(UserError, match="it has the usual activations only"):
                refused()(x)

    def test_auto_leaves_to_torch_what_it_is_faster_at(self) -> None:
        from unrolled.kernels.native_core import ISA

        if ISA == "plain":
            pytest.skip("the plain kernels leave what they can to torch")
        short, large, alone = torch.zeros(4, 2, 128), torch.zeros(40, 64, 128), torch.zeros(40, 1, 128)
        assert str(unrolled.GRU(128, 8).backend_for(short)) == "torch: not native: torch is faster for few steps"
        assert unrolled.GRU(128, 8).backend_for(short, lengths=[4, 2]).engine == "native"  # torch would pack and loop
        assert unrolled.LSTM(128, 8).backend_for(short).engine == "native"
        for layer in (unrolled.LSTM(128, 128), unrolled.GRU(128, 128), unrolled.RNN(128, 128)):
            assert layer.backend_for(large).engine == "native"
            assert layer.backend_for(alone).engine == "native"
        with torch.no_grad():
            reason = "not native: torch is faster without gradients for few sequences"
            assert str(unrolled.LSTM(128, 128).backend_for(alone)) == f"torch: {reason}"
            assert unrolled.LSTM(128, 128).backend_for(large).engine == "native"
            assert unrolled.GRU(128, 128).backend_for(alone).engine == "native"
            assert unrolled.LSTM(128, 128, peephole=True).backend_for(alone).engine == "native"

    def test_not_built(self, monkeypatch: pytest.MonkeyPatch) -> None:
        without = {name: engine for name, engine in ENGINES.items() if name != "native"}
        monkeypatch.setattr("unrolled.kernels.recurrence.scan.ENGINES", without)
        monkeypatch.setitem(kernels.NOT_BUILT, "native", "No module named 'unrolled.kernels._native'")
        with pytest.raises(UserError, match=r"not built in this installation.*Install a C\+\+20 compiler"):
            unrolled.LSTM(3, 4, backend="native")
        assert unrolled.LSTM(3, 4, peephole=True).backend_for(torch.zeros(5, 2, 3)).engine == "reference"

    def test_an_installation_without_it(self) -> None:
        """The extension cannot be imported: everything else works, and `doctor` says why."""
        code = (
            "import sys\n"
            "sys.modules['unrolled.kernels._native'] = None\n"
            "import torch, unrolled\n"
            "from unrolled.kernels import ENGINES, NOT_BUILT\n"
            "from unrolled.cli.doctor import examine\n"
            "assert list(ENGINES) == ['cuda', 'torch', 'reference'], ENGINES\n"
            "unrolled.LSTM(3, 4, peephole=True)(torch.randn(5, 2, 3))[0].sum().backward()\n"
            "unrolled.LSTM(3, 4).stepper()(torch.zeros(1, 3), unrolled.LSTM(3, 4).stepper().initial_state(1))\n"
            "assert 'not built' in examine()['native'], examine()\n"
        )
        warm.python("-c", code, check=True)
