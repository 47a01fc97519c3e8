"""Model files are for ever: each stored one loads and answers as it did when it was written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.compat import answers
from tests.compat.answers import answer
from tests.tolerances import TOLERANCES
from unrolled import api
from unrolled.tasks import TASKS

STORED = sorted(Path(__file__).parent.glob("*/*.safetensors"))


@pytest.mark.parametrize("path", STORED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_stored_model_answers_as_it_did(path: Path) -> None:
    expected = json.loads((path.parent / "answers.json").read_text())[path.stem]
    check(answer(api.load(path), path.stem, path.parent), expected)


def test_there_are_stored_models_of_every_task_and_kind() -> None:
    assert {path.stem.split("-")[0] for path in STORED} == set(TASKS)
    assert {path.stem for path in STORED} == {*answers.STORED, *answers.LATER}


def check(found: Any, expected: Any) -> None:
    """The same words, and the same numbers to rounding: processors differ in the last bits."""
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for key, value in expected.items():
            check(found[key], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            check(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=TOLERANCES[torch.float32], abs=TOLERANCES[torch.float32])
    else:
        assert found == expected
