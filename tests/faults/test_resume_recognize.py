"""A recognizer's run, stopped anywhere, ends with the same bits: its batches are made ahead and changed by chance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.test_resume import assert_resumed_is_as_if_never_stopped
from tests.tasks.recognition import SMALL, words, write_lines, write_recordings

SETTINGS: dict[str, Any] = {
    **SMALL,
    "model.dropout": 0.2,
    "train.augment": True,
    "train.max_steps": 12,
    "train.eval_every": 4,
    "train.threads": 1,
}


@pytest.mark.parametrize("write", [write_lines, write_recordings])
def test_resumed_is_as_if_never_stopped(write: Any, tmp_path: Path) -> None:
    file = write(tmp_path / "data", words(40))
    assert_resumed_is_as_if_never_stopped("recognize", file, SETTINGS, tmp_path)
