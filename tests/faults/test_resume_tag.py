"""A tagger's run, whose batches are shuffled anew in every epoch, stopped anywhere ends with the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.test_resume import assert_resumed_is_as_if_never_stopped
from tests.fitting import fitting
from tests.tasks.tag.conftest import SMALL, columns_text

SETTINGS: dict[str, Any] = {**SMALL, "train.max_steps": 12, "train.eval_every": 2, "train.threads": 1}


@pytest.mark.parametrize("changes", [{}, {"model.output": "softmax", "model.tune_vectors": False}])
def test_resumed_is_as_if_never_stopped(changes: dict[str, Any], tmp_path: Path) -> None:
    text, vectors = tmp_path / "chunks.txt", tmp_path / "vectors.txt"
    text.write_text(columns_text())
    vectors.write_text("ada 1 2 3\nrome -1 -2 -3\n")
    settings = {**SETTINGS, **changes} | ({"data.vectors": str(vectors)} if changes else {})
    assert_resumed_is_as_if_never_stopped("tag", text, fitting("tag", settings), tmp_path, stops=(1, 4))
