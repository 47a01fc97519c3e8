"""A captioner's run, stopped anywhere, ends with the same bits: draws, shifts and the baseline too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.test_resume import assert_resumed_is_as_if_never_stopped
from tests.fitting import fitting
from tests.tasks.caption.conftest import SMALL, write


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
    assert_resumed_is_as_if_never_stopped("caption", table, fitting("caption", settings), tmp_path)
