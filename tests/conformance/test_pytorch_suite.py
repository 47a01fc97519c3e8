"""PyTorch's own tests: what ships with torch runs here; the rest where its sources are (pytorch_suite.py)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests import warm
from tests.conformance import pytorch_suite as suite


def test_torchs_database_of_modules() -> None:
    """In a process of its own: torch's helpers change global settings."""
    command = "import sys, warnings; from tests.conformance import pytorch_suite as suite; "
    command += "warnings.simplefilter('ignore'); sys.exit(suite.main())"
    ran = warm.python("-c", command, "--json")
    outcomes = json.loads(ran.stdout)
    assert {name: outcome for name, outcome in outcomes.items() if outcome != "passed"} == {}
    assert len(outcomes) == 43
    assert ran.returncode == 0


TESTS = """
import unittest, torch
from torch import nn

class TestNN(unittest.TestCase):
    def test_rnn_is_replaced(self):
        self.assertEqual(type(nn.LSTM(3, 4)).__module__.split(".")[0], self.whose())

    def whose(self):
        return type(torch.nn.GRU(2, 2)).__module__.split(".")[0]

    def test_rnn_both_pass(self):
        layer = nn.GRU(3, 4)
        self.assertEqual(layer(torch.zeros(5, 2, 3))[0].shape, (5, 2, 4))
        torch.nn.functional.ctc_loss(torch.zeros(3, 2, 4), torch.ones(2, 1).long(), (3, 3), (1, 1))

    def test_rnn_torchs_alone(self):
        self.assertEqual(type(nn.RNN(3, 4)).__module__, "torch.nn.modules.rnn")

    def test_rnn_nobody_passes(self):
        self.fail()

    def test_something_else(self):
        self.fail()
"""


def test_the_runner_tells_ours_from_torchs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "test_nn.py").write_text(TESTS)
    assert suite.run_sources(tmp_path, {"test_nn.py": "rnn", "test_gone.py": "rnn"}) == 1
    assert capsys.readouterr().out.splitlines() == [
        "test_nn.py: 2 of 3",
        "  FAILED: test_nn.py::TestNN::test_rnn_torchs_alone",
        "test_gone.py: not in this checkout",
    ]


def test_known_differences_have_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(suite.DIFFERENCES, r"a\.py::.*alone", "so it is")
    theirs, ours = {"T::both": "passed", "T::alone": "passed", "T::skipped": "skipped"}, {"T::both": "passed"}
    assert suite.judge(theirs, ours, "a.py") == (["a.py::T::both", "a.py::T::alone"], [], ["a.py::T::alone"])
    assert suite.judge(theirs, ours, "b.py")[1] == ["b.py::T::alone"]
    assert all(len(reason) > 20 for reason in suite.DIFFERENCES.values() if reason != "so it is")


def test_a_folder_that_is_no_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["pytorch_suite", "--pytorch", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        suite.main()
    assert "has no folder test: give a checkout of PyTorch's sources." in capsys.readouterr().err
