"""Word vectors against gensim, where it is installed: what it writes we read, and the other way; the same analogies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.tolerances import assert_close
from unrolled.text import Vectors

gensim = pytest.importorskip("gensim.models", reason="gensim is not installed: pip install gensim")

WORDS = [f"w{number}" for number in range(500)]
MATRIX = np.random.default_rng(3).normal(size=(500, 6)).astype(np.float32)


@pytest.fixture(scope="module")
def theirs() -> object:
    vectors = gensim.KeyedVectors(6)
    vectors.add_vectors(WORDS, MATRIX)
    return vectors


@pytest.mark.parametrize(("name", "binary"), [("v.txt", False), ("v.txt.gz", False), ("v.bin", True)])
def test_files_written_by_gensim_are_read(name: str, binary: bool, theirs: object, tmp_path: Path) -> None:
    theirs.save_word2vec_format(str(tmp_path / name), binary=binary)  # type: ignore[attr-defined]
    ours = Vectors.read(tmp_path / name)
    assert ours.words == WORDS
    assert np.array_equal(ours.matrix, MATRIX)


@pytest.mark.parametrize("name", ["v.txt", "v.txt.gz"])
def test_files_that_we_write_are_read_by_gensim(name: str, tmp_path: Path) -> None:
    Vectors(WORDS, MATRIX).write(tmp_path / name)
    read = gensim.KeyedVectors.load_word2vec_format(str(tmp_path / name))
    assert read.index_to_key == WORDS
    assert np.array_equal(read.vectors, MATRIX)


def test_neighbours_and_sums_are_the_same(theirs: object) -> None:
    ours = Vectors(WORDS, MATRIX)
    for found, expected in [
        (ours.nearest("w7", 20), theirs.most_similar("w7", topn=20)),  # type: ignore[attr-defined]
        (
            ours.analogy("w1 - w2 + w3", 20),
            theirs.most_similar(positive=["w1", "w3"], negative=["w2"], topn=20),  # type: ignore[attr-defined]
        ),
    ]:
        assert [word for word, _ in found] == [word for word, _ in expected]
        assert_close(torch.tensor([c for _, c in found]), torch.tensor([c for _, c in expected]))


def test_analogies_score_the_same(theirs: object, tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    lines = []
    for name in ("towns", "gram1-plural"):
        lines.append(f": {name}")
        for number in range(40):
            a, b, c = (WORDS[row] for row in random.choice(500, 3, replace=False))
            best = theirs.most_similar(positive=[b, c], negative=[a], topn=1)[0][0]  # type: ignore[attr-defined]
            lines.append(f"{a} {b} {c} {best if number % 3 else 'w9'}")
        lines.append("w1 w2 w3 unknown")
    file = tmp_path / "questions.txt"
    file.write_text("\n".join(lines) + "\n")
    score, sections = theirs.evaluate_word_analogies(str(file))  # type: ignore[attr-defined]
    ours = Vectors(WORDS, MATRIX).analogies(file)
    assert ours["total"] == score
    assert [group["correct"] for group in ours["groups"].values()] == [len(s["correct"]) for s in sections[:2]]
    assert ours["skipped"] == 2
