"""A translator's run, stopped anywhere, ends with the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.test_resume import assert_resumed_is_as_if_never_stopped
from tests.fitting import fitting
from tests.tasks.translate.conftest import KINDS, SMALL, numbers, table

SETTINGS: dict[str, Any] = {
    **SMALL,
    "model.decoder.dropout": 0.2,
    "train.max_steps": 12,
    "train.eval_every": 4,
    "train.teacher_forcing": "linear",
    "train.threads": 1,
}


@pytest.mark.parametrize("kind", ["luong", "transformer"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"train.batch_tokens": 60, "train.average_last": 2, "train.feedback": "steps"},
    ],
)
def test_resumed_is_as_if_never_stopped(kind: str, changes: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "numbers.tsv"
    file.write_text(table(numbers()))
    settings = fitting("translate", {**SETTINGS, **KINDS[kind], **changes})
    assert_resumed_is_as_if_never_stopped("translate", file, settings, tmp_path)
