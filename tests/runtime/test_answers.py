"""An exported model answers as its model file does: every kind, in a process where torch cannot be imported."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from tests.compat.test_compat import check
from tests.runtime.asked import answers
from tests.runtime.folders import KINDS, STORED, folder_of, model_of
from unrolled.tasks import TASKS


def without_torch(kinds: Sequence[str]) -> dict[str, list[str]]:
    """The outputs of a process that has no torch."""
    folders = [f"{kind}={folder_of(kind)}" for kind in kinds]
    command = [sys.executable, "-m", "tests.runtime.asked", str(STORED), *folders]
    done = subprocess.run(command, capture_output=True, text=True, cwd=STORED.parents[2], check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.filterwarnings("ignore")
def test_equal_answers_without_torch(task: str) -> None:
    kinds = [kind for kind in KINDS if kind.split("-")[0] == task]
    assert kinds
    found = without_torch(kinds)
    for kind in kinds:
        expected = answers(model_of(kind), kind, str(STORED))
        for ours, theirs in zip(found[kind], expected, strict=True):
            check(parsed(ours), parsed(theirs))


def parsed(output: str) -> Any:
    """Records, rows of numbers, or lines."""
    lines = output.splitlines()
    if lines and lines[0].startswith("{"):
        return [json.loads(line) for line in lines]
    rows = list(csv.reader(io.StringIO(output), delimiter="\t" if "\t" in output else ","))
    return [[_number(cell) for cell in row] for row in rows]


def _number(cell: str) -> Any:
    try:
        return float(cell)
    except ValueError:
        return cell
