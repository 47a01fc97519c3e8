"""GloVe answers Mikolov's questions as well as it is known to. The data's place is read from UNROLLED_DATA."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from unrolled.text import Vectors

DATA = os.environ.get("UNROLLED_DATA")


@pytest.mark.skipif(DATA is None, reason="UNROLLED_DATA is not set: no vectors and questions here")
def test_glove_knows_its_analogies() -> None:
    vectors = Vectors.read(Path(DATA or "", "glove", "glove.6B.100d.subset.npz"))
    assert vectors.matrix.shape == (48_628, 100)
    scores = vectors.analogies(Path(DATA or "", "analogy", "questions-words.txt"))
    assert (scores["asked"], scores["skipped"]) == (19_544, 0)
    assert len(scores["groups"]) == 14
    per_cent = {name: 100 * scores[name] for name in ("total", "semantic", "syntactic")}
    assert per_cent == pytest.approx({"total": 63.8, "semantic": 65.8, "syntactic": 62.1}, abs=0.1)
    assert vectors.analogy("king - man + woman", 1)[0][0] == "queen"
