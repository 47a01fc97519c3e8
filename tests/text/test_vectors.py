"""Word vectors: neighbours and analogies, held to brute force."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tolerances import assert_close
from unrolled import UserError
from unrolled.text import Vectors, analogies
from unrolled.text.vectors import read_terms


def some(words: int, size: int, seed: int) -> Vectors:
    matrix = np.random.default_rng(seed).normal(size=(words, size))
    return Vectors([f"w{number}" for number in range(words)], matrix)


def check_neighbours(
    vectors: Vectors, query: Any, without: set[str], count: int, found: list[tuple[str, float]]
) -> None:
    """By the definition, in float64; words whose cosines are equal to rounding may change places."""
    matrix, query = vectors.matrix.astype(np.float64), np.asarray(query, dtype=np.float64)
    cosines = matrix @ query / np.sqrt((matrix**2).sum(axis=1) * (query**2).sum())
    of = {word: value for word, value in zip(vectors.words, cosines, strict=True) if word not in without}
    words, values = [word for word, _ in found], torch.tensor([value for _, value in found], dtype=torch.float32)
    assert len(set(words)) == len(words) == min(count, len(of))
    assert_close(values, np.array([of[word] for word in words], dtype=np.float32))
    assert_close(values, np.array(sorted(of.values(), reverse=True)[:count], dtype=np.float32))


@settings(deadline=None)
@given(words=st.integers(4, 40), size=st.integers(2, 9), count=st.integers(1, 50), seed=st.integers(0, 10**6))
def test_nearest_words_have_the_largest_cosines(words: int, size: int, count: int, seed: int) -> None:
    vectors = some(words, size, seed)
    found = vectors.nearest("w1", count, without=["w2", "nothing"])
    check_neighbours(vectors, vectors["w1"], {"w1", "w2"}, count, found)
    check_neighbours(vectors, vectors["w1"] * 7, set(), count, vectors.nearest(vectors["w1"] * 7, count))


@settings(deadline=None)
@given(words=st.integers(4, 40), size=st.integers(2, 9), seed=st.integers(0, 10**6))
def test_an_analogy_adds_vectors_of_length_one(words: int, size: int, seed: int) -> None:
    vectors = some(words, size, seed)
    a, b, c = (vectors[word] / np.linalg.norm(vectors[word]) for word in ("w0", "w1", "w2"))
    found = vectors.analogy("w1 - w0 + w2", count=words)
    check_neighbours(vectors, b - a + c, {"w0", "w1", "w2"}, words, found)
    assert found == vectors.analogy(["w1", "-", "w0", "+", "w2"], count=words)


def test_the_questions_of_a_file_are_answered_as_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of a few words and of a few questions: the cut changes nothing."""
    monkeypatch.setattr(analogies, "SIMILARITIES", 1)
    monkeypatch.setattr(analogies, "AT_ONCE", 7)
    vectors = some(700, 5, seed=1)
    random = np.random.default_rng(2)
    groups: dict[str, list[list[str]]] = {"towns": [], "gram1-plural": []}
    expected = dict.fromkeys(groups, 0)
    for number in range(60):
        name = ("towns", "gram1-plural")[number % 2]
        a, b, c = (f"w{row}" for row in random.choice(700, 3, replace=False))
        best = vectors.analogy(f"{b} - {a} + {c}", 1)[0][0]
        d = best if number % 3 else "w5"
        expected[name] += d == best
        groups[name].append([a, b, c, d])
    groups["towns"].append(["w1", "w2", "w3", "missing"])
    file = tmp_path / "questions.txt"
    file.write_text("".join(f": {name}\n" + "".join(f"{' '.join(q)}\n" for q in qs) for name, qs in groups.items()))
    scores = vectors.analogies(file)
    assert scores["semantic"] == expected["towns"] / 30
    assert scores["syntactic"] == expected["gram1-plural"] / 30
    assert scores["total"] == sum(expected.values()) / 60
    assert (scores["asked"], scores["skipped"]) == (60, 1)
    assert scores["groups"]["towns"] == {
        "accuracy": expected["towns"] / 30,
        "correct": expected["towns"],
        "asked": 30,
        "skipped": 1,
    }


def test_a_group_of_unknown_words_has_no_score(tmp_path: Path) -> None:
    file = tmp_path / "questions.txt"
    file.write_text(": towns\nAthens Greece Paris France\n\n: gram1\nw0 W1 w2 w3\n")
    scores = some(4, 3, seed=0).analogies(file)
    assert scores["semantic"] is None
    assert scores["groups"]["towns"] == {"accuracy": None, "correct": 0, "asked": 0, "skipped": 1}
    assert scores["total"] == scores["syntactic"] == 1.0  # one word is left


def test_words_are_found_as_written_then_in_lower_case() -> None:
    vectors = Vectors(["us", "US", "café"], [[1.0], [2.0], [3.0]])
    assert vectors.ids(["us", "US", "Us", "CAFÉ", "tea"]).tolist() == [0, 1, 0, 2, -1]
    assert "Café" in vectors
    assert "tea" not in vectors
    assert 3 not in vectors
    assert len(vectors) == 3
    assert vectors.size == 1


def test_a_vector_of_zeros_is_near_to_nothing() -> None:
    vectors = Vectors(["nil", "a", "b"], [[0, 0], [1, 0], [-1, 0]])
    assert vectors.nearest("a") == [("nil", 0.0), ("b", -1.0)]
    with pytest.raises(UserError, match=r"^The query is a vector of zeros: it has no direction\. Ask for another"):
        vectors.nearest("nil")


def test_everything_left_out_leaves_nothing() -> None:
    vectors = Vectors(["a", "b"], [[1, 0], [0, 1]])
    assert vectors.nearest("a", without=["b"]) == []


@pytest.mark.parametrize(
    ("terms", "read"),
    [
        ("king", [(1, "king")]),
        ("-", [(1, "-")]),
        ("- king + man", [(-1, "king"), (1, "man")]),
        ("state-of-the-art − art", [(1, "state-of-the-art"), (-1, "art")]),
        ([" king", "+", "a b"], [(1, " king"), (1, "a b")]),
    ],
)
def test_a_sum_is_read(terms: str | list[str], read: list[tuple[int, str]]) -> None:
    assert read_terms(terms) == read


SUM = "Expected words with + or - between them: king - man + woman"


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ("", f"There are no words. {SUM}"),
        ("king queen", f"There is no sign between 'king' and 'queen'. {SUM}"),
        ("king - - man", f"'-' is in the place of a word. {SUM}"),
        ("- - man", f"'-' is in the place of a word. {SUM}"),
        ("king +", f"The sum ends with a sign. {SUM}"),
    ],
)
def test_a_wrong_sum_is_refused(terms: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        read_terms(terms)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("word", "hint"),
    [("quene", "Did you mean 'queen'?"), ("PARIS", "Did you mean 'Paris'?"), ("xyzzy", ""), (" ", "")],
)
def test_an_unknown_word_gets_the_nearest_spelling(word: str, hint: str) -> None:
    vectors = Vectors(["queen", "Paris", "pear"], np.eye(3))
    with pytest.raises(UserError) as error:
        vectors.analogy([word, "+", "pear"])
    assert str(error.value) == f"There is no vector for {word!r} among 3 words. {hint}".strip()


@pytest.mark.parametrize(
    ("words", "matrix", "message"),
    [
        (["a"], np.ones((2, 3)), "1 words came with a matrix of shape (2, 3). Expected a row for each word, (N, D), "),
        ([], np.ones((0, 3)), "0 words came with a matrix of shape (0, 3). Expected a row for each word, (N, D), and"),
        (["a", "b", "a"], np.ones((3, 1)), "The words hold 'a' twice. Expected every word once."),
        (["a", "b"], [[0], [np.nan]], "The vector of 'b' holds NaN or infinity. Expected finite numbers."),
    ],
)
def test_wrong_vectors_are_refused(words: list[str], matrix: np.ndarray, message: str) -> None:
    with pytest.raises(UserError) as error:
        Vectors(words, matrix)
    assert str(error.value).startswith(message)


def test_wrong_queries_are_refused() -> None:
    vectors = some(3, 2, seed=0)
    with pytest.raises(UserError, match=r"^The query has shape \(3,\)\. Expected 2 finite numbers, or a word\.$"):
        vectors.nearest([1, 2, 3])
    with pytest.raises(UserError, match=r"^count=0 is not a number of words\. Expected a whole number from 1 on\.$"):
        vectors.nearest("w0", 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (": a\nx y z\n", "{file}:2: 3 words, not 4. Expected a question, a b c d, or a group, `: name`."),
        (": a\n\n", "{file} has no questions. Expected four words on a line: Athens Greece Paris France"),
    ],
)
def test_wrong_questions_are_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "questions.txt"
    file.write_text(text)
    with pytest.raises(UserError) as error:
        some(3, 2, seed=0).analogies(file)
    assert str(error.value) == message.format(file=file)


def test_questions_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "questions.txt"
    file.write_bytes(b"a b c d\n\xff b c d\n")
    with pytest.raises(UserError) as error:
        some(3, 2, seed=0).analogies(file)
    assert str(error.value) == f"{file}:2 is not UTF-8. Convert it, for example with iconv."
