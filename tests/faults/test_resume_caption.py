"""A captioner's run, stopped anywhere, ends with the same bits: draws, shifts and the baseline too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.test_resume import Killed, assert_same
from tests.tasks.test_caption import SMALL, write
from unrolled import api
from unrolled.training.run import Run


@pytest.mark.parametrize("attention", ["soft", "hard"])
def test_resumed_is_as_if_never_stopped(attention: str, tmp_path: Path) -> None:
    table = write(tmp_path / "scenes")
    settings = {
        **SMALL,
        "data.images": str(tmp_path / "scenes" / "images"),
        "model.decoder.attention": attention,
        "model.decoder.dropout": 0.2,
        "train.shift": 1,
        "train.max_steps": 8,
        "train.eval_every": 4,
        "train.valid_free": 2,
        "train.threads": 1,
    }
    whole, folder, original = tmp_path / "whole", tmp_path / "run", Run.checkpoint
    api.train("caption", train=table, out=whole, set=settings, quiet=True)

    def checkpoint(run: Run) -> None:
        original(run)
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "checkpoint", checkpoint)
        with pytest.raises(Killed):
            api.train("caption", train=table, out=folder, set=settings, quiet=True)
    api.resume(folder, quiet=True)
    assert_same(folder, whole)
