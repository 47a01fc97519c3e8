"""A recognizer's run, stopped anywhere, ends with the same bits: its batches are made ahead and changed by chance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.test_resume import Killed, assert_same
from tests.tasks.recognition import SMALL, words, write_lines, write_recordings
from unrolled import api
from unrolled.training.run import Run

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
    whole, folder, original = tmp_path / "whole", tmp_path / "run", Run.checkpoint
    api.train("recognize", train=file, out=whole, set=SETTINGS, quiet=True)

    def checkpoint(run: Run) -> None:
        original(run)
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "checkpoint", checkpoint)
        with pytest.raises(Killed):
            api.train("recognize", train=file, out=folder, set=SETTINGS, quiet=True)
    api.resume(folder, quiet=True)
    assert_same(folder, whole)
