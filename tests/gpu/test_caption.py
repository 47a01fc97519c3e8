"""Captions on a GPU: it learns there, and says on the CPU what it says there. Skipped where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.fitting import fitting
from tests.tasks.caption.conftest import SMALL, scenes, write
from unrolled import api

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
KINDS: dict[str, dict[str, Any]] = {
    "soft": {"train.shift": 1, "train.teacher_forcing": "linear"},
    "hard": {"model.decoder.attention": "hard"},
    "none": {"model.decoder.attention": "none"},
    "transformer": {"model.kind": "transformer"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_there_and_says_the_same_on_both(kind: str, tmp_path: Path) -> None:
    table = write(tmp_path / "scenes")
    images = {"data.images": str(tmp_path / "scenes" / "images"), "train.device": "cuda"}
    settings = fitting("caption", {**SMALL, **images, **KINDS[kind]}, pictures="pixels")
    model = api.train("caption", train=table, valid=table, out=tmp_path / "run", set=settings, quiet=True)
    pictures = [pixels for _, pixels, _ in scenes()]
    options: dict[str, Any] = {"precision": "fp32", "n_best": 2, "attention": kind != "none"}
    there = model.to("cuda").predict(pictures, **options)
    here = api.load(tmp_path / "run").predict(pictures, **options)
    same = [str(a) == str(b) for a, b in zip(there, here, strict=True)]
    assert sum(same) >= 0.9 * len(same)
