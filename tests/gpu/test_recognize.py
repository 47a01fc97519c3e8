"""Recognition on a GPU gives there what it gives on the CPU. Skipped where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.fitting import fitting
from tests.tasks.recognition import RATE, SMALL, tone, words, write_recordings
from unrolled import api

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


@pytest.mark.parametrize(
    "changes", [{}, {"model.bidirectional": False}, {"model.kind": "transformer", "train.lr": 0.005}]
)
def test_it_learns_there_and_says_the_same_on_both(changes: dict[str, Any], tmp_path: Path) -> None:
    file = write_recordings(tmp_path, words(60))
    keys = {**SMALL, **changes, "train.device": "cuda", "train.max_steps": 100}
    settings = fitting("recognize", keys, data__kind="audio")
    model = api.train("recognize", train=file, valid=file, out=tmp_path / "run", set=settings, quiet=True)
    sounds = [tone(text) for text in words(20, seed=1)]
    there = model.to("cuda").predict(sounds, rate=RATE)
    here = api.load(tmp_path / "run").predict(sounds, rate=RATE)
    assert sum(a.text == b.text for a, b in zip(there, here, strict=True)) >= 19
    for a, b in zip(there, here, strict=True):
        assert a.score == pytest.approx(b.score, abs=1e-2)
    if changes.get("model.bidirectional") is False:
        with model.stream(rate=RATE) as stream:
            stream.feed(sounds[0])
            assert stream.finish().text == there[0].text
