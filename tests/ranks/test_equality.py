"""Two processes train what one trains, at the same global batch: every task, to 1e-5 after 50 updates."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tests.ranks.cases import CASES, UPDATES, write_data
from tests.ranks.launch import ROOT, environment, torchrun

WEIGHTS, SCORES = 1e-5, 1e-4  # largest absolute difference


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of runs of every task, by "one" process or "two"."""
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "data").mkdir()
    write_data(folder / "data")
    words = ["tests.ranks.cases", str(folder / "data")]
    two = torchrun([*words, str(folder / "two")])
    assert two.returncode == 0, two.stderr
    one = [sys.executable, "-m", *words, str(folder / "one")]
    subprocess.run(one, env=environment(), cwd=ROOT, check=True, capture_output=True)
    return lambda name: folder / name


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("task", CASES)
def test_weights_are_those_of_one_process(task: str, runs: Callable[[str], Path]) -> None:
    one, two = (load_file(runs(name) / task / "last.safetensors") for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name in one:
        assert float((one[name].double() - two[name].double()).abs().max()) <= WEIGHTS, name


@pytest.mark.parametrize("task", CASES)
def test_evaluations_are_those_of_one_process(task: str, runs: Callable[[str], Path]) -> None:
    one, two = (rows(runs(name) / task) for name in ("one", "two"))
    assert [row["step"] for row in one][-2:] == [UPDATES // 2, UPDATES]
    for before, after in zip(one, two, strict=True):
        assert before == pytest.approx(after, rel=SCORES, abs=SCORES)
        for key in ("step", "epoch", "tokens", "best"):
            assert before[key] == after[key], key


@pytest.mark.parametrize("task", CASES)
def test_samples_are_those_of_one_process(task: str, runs: Callable[[str], Path]) -> None:
    files = [runs(name) / task / "samples.jsonl" for name in ("one", "two")]
    assert files[0].exists() == files[1].exists()
    if files[0].exists():
        assert files[0].read_text() == files[1].read_text()
