"""n-gram models against KenLM, where it is installed: the same scores of the same ARPA file."""

from __future__ import annotations

import math
import os
import random
from pathlib import Path
from typing import Any

import pytest

from tests.search.ngram.engines import ENGINES
from unrolled.search import NGram

kenlm = pytest.importorskip("kenlm", reason="kenlm is not installed: pip install kenlm")
LN10 = math.log(10)


def compare(path: Path, backend: Any, sentences: list[str]) -> None:
    theirs, ours = kenlm.Model(str(path)), NGram.load(path, backend=backend)
    assert ours.order == theirs.order
    for sentence in sentences:
        expected = list(theirs.full_scores(sentence))
        scores = ours.scores(sentence)
        assert [s.log_prob / LN10 for s in scores] == pytest.approx([prob for prob, _, _ in expected], abs=1e-5)
        assert [s.known for s in scores] == [not oov for _, _, oov in expected]
        assert ours.score(sentence) / LN10 == pytest.approx(theirs.score(sentence), abs=1e-4)
        assert [s.length for s in scores if s.known] == [length for _, length, oov in expected if not oov]


@pytest.mark.skipif("UNROLLED_DATA" not in os.environ, reason="UNROLLED_DATA is not set")
@pytest.mark.parametrize("backend", ENGINES)
@pytest.mark.parametrize("name", ["lm.arpa.gz", "bugs_bunny_kenlm.arpa"])
def test_files_that_others_made(name: str, backend: Any) -> None:
    sentences = ["the cat sat on the mat", "bugs bunny", "the man of the house and nobody's zzzz", "", "a a a a"]
    compare(Path(os.environ["UNROLLED_DATA"]) / "ctc_decoding" / name, backend, sentences)


@pytest.mark.parametrize("backend", ENGINES)
def test_a_model_with_holes(backend: Any, tmp_path: Path) -> None:
    """n-grams are there without their endings; what they begin with KenLM insists on."""
    source = random.Random(5)
    words = ["<s>", "</s>", "<unk>", *"abcdef"]
    orders: list[dict[tuple[str, ...], tuple[float, float]]] = []
    for length, share in ((1, 1.0), (2, 0.8), (3, 0.8), (4, 0.1)):
        every: list[tuple[str, ...]] = [()]
        for _ in range(length):
            every = [(*ngram, word) for ngram in every for word in words]
        if length > 1:
            every = [n for n in every if "<s>" not in n[1:] and "<unk>" not in n and n[:-1] in orders[-1]]
        picked = [n for n in every if source.random() < share]
        orders.append({n: (-3 * source.random(), -source.random()) for n in picked})
    path = tmp_path / "holes.arpa"
    lines = ["\\data\\", *(f"ngram {order}={len(table)}" for order, table in enumerate(orders, 1))]
    for order, table in enumerate(orders, 1):
        lines += ["", f"\\{order}-grams:"]
        for ngram, (prob, backoff) in table.items():
            lines.append(f"{prob:.5f}\t{' '.join(ngram)}" + (f"\t{backoff:.5f}" if order < 4 else ""))
    path.write_text("\n".join([*lines, "", "\\end\\", ""]))
    sentences = [" ".join(source.choices([*"abcdef", "x"], k=12)) for _ in range(200)]
    theirs, ours = kenlm.Model(str(path)), NGram.load(path, backend=backend)
    for sentence in sentences:
        expected = [prob for prob, _, _ in theirs.full_scores(sentence)]
        assert [s.log_prob / LN10 for s in ours.scores(sentence)] == pytest.approx(expected, abs=1e-5)
