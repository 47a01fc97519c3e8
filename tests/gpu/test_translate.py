"""Translation on a GPU: the search gives there what it gives on the CPU. Skipped where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.fitting import fitting
from tests.tasks.translate.conftest import KINDS, SMALL, numbers, table
from unrolled import api

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_there_and_says_the_same_on_both(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "numbers.tsv"
    file.write_text(table(numbers()))
    settings = fitting("translate", {**SMALL, **KINDS[kind], "train.device": "cuda", "train.max_steps": 100})
    model = api.train("translate", train=file, valid=file, out=tmp_path / "run", set=settings, quiet=True)
    texts = [source for source, _ in numbers()]
    options: dict[str, Any] = {"precision": "fp32", "n_best": 2, "no_repeat_ngram": 2, "attention": kind != "plain"}
    there = model.to("cuda").predict(texts, **options)
    here = api.load(tmp_path / "run").predict(texts, **options)
    same = [str(a) == str(b) for a, b in zip(there, here, strict=True)]
    assert sum(same) >= 0.95 * len(same)
    for a, b in zip(there, here, strict=True):
        assert a.score == pytest.approx(b.score, abs=1e-3)
