"""n-grams on the Penn Treebank: the number that others published."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from unrolled.kernels.native_module import NATIVE
from unrolled.search import NGram


@pytest.mark.skipif("UNROLLED_DATA" not in os.environ, reason="UNROLLED_DATA is not set")
@pytest.mark.skipif(NATIVE is None, reason="the C++ core is not built")
def test_penn_treebank() -> None:
    """Mikolov and Zweig 2012 give 141.2 for a 5-gram model with (modified) Kneser–Ney smoothing."""
    folder = Path(os.environ["UNROLLED_DATA"]) / "ptb"
    model = NGram.train(folder / "ptb.train.txt", order=5)
    assert model.perplexity(folder / "ptb.test.txt") == pytest.approx(141.2, abs=0.05)
