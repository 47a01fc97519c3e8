"""Modified Kneser–Ney estimates: worked by hand, normalised, equal to lmplz's, the same on both engines."""

from __future__ import annotations

import codecs
import gzip
import importlib
import io
import math
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import warm
from tests.search.ngram.engines import ENGINES, needs_native
from unrolled.errors import Note, UserError
from unrolled.search import NGram


def trained(text: Any, **options: Any) -> NGram:
    """Without the notes of small texts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Note)
        return NGram.train(text, **options)


def probabilities(model: NGram, order: int) -> dict[str, float]:
    return {" ".join(entry.words): 10**entry.prob for entry in model.ngrams(order)}


def left_over(model: NGram, order: int) -> dict[str, float]:
    return {" ".join(entry.words): 10**entry.backoff for entry in model.ngrams(order)}


@pytest.mark.parametrize("backend", ENGINES)
def test_two_sentences_by_hand(backend: Any) -> None:
    """No n-gram occurs three times: D1, D2, D3+ are 0.5, 1, 1.5.

    Unigrams are counted by what stands before them: a, b and c 1, </s> 2; together 5, of which 0.5 · 3 + 1 are left
    for all five words alike.
    """
    with pytest.warns(Note) as notes:
        model = NGram.train(["a b", "a c"], order=2, backend=backend)
    assert [str(note.message) for note in notes] == [
        "The text is too small, or too regular, to estimate the discounts of 1-grams: no 1-gram has the count 3. "
        "Used instead: 0.5, 1, 1.5.",
        "The text is too small, or too regular, to estimate the discounts of 2-grams: no 2-gram has the count 3. "
        "Used instead: 0.5, 1, 1.5.",
    ]
    uniform = 2.5 / 5 / 5
    one, two = 0.5 / 5 + uniform, 1 / 5 + uniform
    assert probabilities(model, 1) == pytest.approx(
        {"<unk>": uniform, "<s>": 1, "</s>": two, "a": one, "b": one, "c": one}
    )
    assert probabilities(model, 2) == pytest.approx(
        {
            "<s> a": (2 - 1) / 2 + 0.5 * one,
            "a b": (1 - 0.5) / 2 + 0.5 * one,
            "a c": (1 - 0.5) / 2 + 0.5 * one,
            "b </s>": (1 - 0.5) / 1 + 0.5 * two,
            "c </s>": (1 - 0.5) / 1 + 0.5 * two,
        }
    )
    assert left_over(model, 1) == pytest.approx({"<unk>": 1, "<s>": 0.5, "</s>": 1, "a": 0.5, "b": 0.5, "c": 0.5})


@pytest.mark.parametrize("backend", ENGINES)
def test_discounts_by_hand(backend: Any) -> None:
    """t1 = 4 (p, q, r and </s>), t2 = 2, t3 = 1, t4 = 1: Y = ½, D1 = ½, D2 = 5/4, D3+ = 1; nine words with <unk>."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", Note)
        model = NGram.train(["p q r s s t t u u u v v v v"], order=1, backend=backend)
    uniform = (4 * 0.5 + 2 * 1.25 + 2 * 1) / 15 / 9
    found = probabilities(model, 1)
    assert found.pop("<s>") == 1
    assert found == pytest.approx(
        {
            "<unk>": uniform,
            **dict.fromkeys(["p", "q", "r", "</s>"], 0.5 / 15 + uniform),
            **dict.fromkeys(["s", "t"], 0.75 / 15 + uniform),
            "u": 2 / 15 + uniform,
            "v": 3 / 15 + uniform,
        }
    )


@pytest.mark.parametrize("backend", ENGINES)
def test_pruning_by_hand(backend: Any) -> None:
    """`a b` and `a c` occur once and are left out: all that follows `a` is left to the unigrams."""
    model = trained(["a b", "a c"], order=2, prune=[0, 1], backend=backend)
    assert list(probabilities(model, 2)) == ["<s> a"]
    assert left_over(model, 1) == pytest.approx({"<unk>": 1, "<s>": 0.5, "</s>": 1, "a": 1, "b": 1, "c": 1})


ZEN_COMMAND = ("lmplz", "-o", "3", "--discount_fallback", "--prune", "0", "0", "1")
# lines of what ZEN_COMMAND --text zen.txt --arpa zen.arpa makes of the lines below (KenLM 0.3.0)
ZEN = {
    "<unk>": (-2.1543214, 0),
    "<s>": (0, -0.034709133),
    "</s>": (-0.92482734, 0),
    "the": (-1.6778762, -0.02464745),
    "is": (-1.3100929, -0.23399764),
    "better": (-2.0010393, -0.18997617),
    "is better": (-0.39166597, -0.66900676),
    "often better": (-1.18978, 0),
    "than *right*": (-1.8242719, 0),
    "<s> if the": (-0.2696177, 0),
    "the implementation is": (-0.2590699, 0),
    "is better than": (-0.064078405, 0),
    "if the implementation": (-0.2928024, 0),
}


def zen() -> list[str]:
    with redirect_stdout(io.StringIO()):
        text = codecs.decode(importlib.import_module("this").s, "rot13")
    return [line for line in text.lower().split("\n") if line]


@pytest.mark.parametrize("backend", ENGINES)
def test_stored_estimates_of_lmplz(backend: Any) -> None:
    model = trained(zen(), order=3, prune=[0, 0, 1], backend=backend)
    assert model.counts == [96, 143, 4]
    found = {" ".join(words): (p, b) for order in (1, 2, 3) for words, p, b in model.ngrams(order)}
    for ngram, expected in ZEN.items():
        assert found[ngram] == pytest.approx(expected, abs=1e-6), ngram


@pytest.mark.skipif(shutil.which("lmplz") is None, reason="KenLM's lmplz is not on the path")
@pytest.mark.parametrize("backend", ENGINES)
@pytest.mark.parametrize(("order", "prune"), [(1, [0]), (2, [0]), (3, [0, 1]), (4, [0, 0, 1, 2]), (6, [0])])
def test_every_estimate_of_lmplz(order: int, prune: list[int], backend: Any, tmp_path: Path) -> None:
    """lmplz counts its very last n-grams as often as they occur; the last word therefore occurs once."""
    from pydoc_data.topics import topics

    lines = [line for line in "\n".join(topics.values()).split("\n") if line.strip()][:1500]
    text = tmp_path / "text.txt"
    text.write_text("\n".join([*lines, "lastofall"]) + "\n")
    command = ["lmplz", "-o", str(order), "-S", "50M", "--discount_fallback", "--prune", *map(str, prune)]
    subprocess.run([*command, "--text", text, "--arpa", tmp_path / "theirs.arpa"], check=True, capture_output=True)
    theirs, ours = NGram.load(tmp_path / "theirs.arpa"), trained(text, order=order, prune=prune, backend=backend)
    assert ours.counts == theirs.counts
    for length in range(1, order + 1):
        expected = {words: (prob, backoff) for words, prob, backoff in theirs.ngrams(length)}
        for words, prob, backoff in ours.ngrams(length):
            assert (prob, backoff) == pytest.approx(expected[words], abs=2e-6), words


SENTENCES = st.lists(st.lists(st.sampled_from([*"abcdefg", "<unk>"]), min_size=1, max_size=8), min_size=1, max_size=30)


@settings(deadline=None, max_examples=50)
@given(SENTENCES, st.integers(1, 3), st.sampled_from([[0], [0, 1], [0, 1, 2]]))
def test_every_context_sums_to_one(sentences: list[list[str]], order: int, prune: list[int]) -> None:
    model = trained(sentences, order=order, prune=prune[:order], backend="reference")
    vocabulary = [words[0] for words, _, _ in model.ngrams(1) if words != ("<s>",)]
    states = [model.initial()]
    states += [model.advance(s, word)[1] for s in states[:1] for word in vocabulary]
    states += [model.advance(s, word)[1] for s in states[1:] for word in vocabulary]
    for state in set(states):
        total = math.fsum(math.exp(model.advance(state, word)[0]) for word in vocabulary)
        assert total == pytest.approx(1, abs=1e-9)


@needs_native
@settings(deadline=None, max_examples=50)
@given(SENTENCES, st.integers(1, 4), st.sampled_from([[0], [0, 1], [0, 1, 2]]))
def test_both_engines_agree(sentences: list[list[str]], order: int, prune: list[int]) -> None:
    if max(map(len, sentences)) + 2 < order:
        return
    options: dict[str, Any] = {"order": order, "prune": prune[:order]}
    plain = trained(sentences, backend="reference", **options)
    native = trained(sentences, backend="native", memory="64K", **options)
    assert native.counts == plain.counts
    for length in range(1, order + 1):
        expected = {words: (prob, backoff) for words, prob, backoff in plain.ngrams(length)}
        for words, prob, backoff in native.ngrams(length):
            assert (prob, backoff) == pytest.approx(expected[words], abs=2e-6)


@needs_native
@pytest.mark.parametrize("order", [2, 3, 9])
def test_little_memory_changes_nothing(order: int, tmp_path: Path) -> None:
    """Runs on disk: of order 9 so many that they are merged more than once, and too wide for a sort of their own."""
    from pydoc_data.topics import topics

    lines = "\n".join(topics.values()).split("\n")
    folder = tmp_path / "scratch"
    folder.mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Note)
        NGram.train_to(tmp_path / "much.arpa", lines, order=order)
        NGram.train_to(tmp_path / "little.arpa", lines, order=order, memory="64K", scratch=folder)
    assert (tmp_path / "much.arpa").read_bytes() == (tmp_path / "little.arpa").read_bytes()
    assert list(folder.iterdir()) == []


@needs_native
def test_a_full_disk(tmp_path: Path) -> None:
    """The largest file that this process may write is smaller than what has to go to disk."""
    code = (
        "import resource, sys, warnings\n"
        "from pydoc_data.topics import topics\n"
        "from unrolled.search import NGram\n"
        "warnings.simplefilter('ignore')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))\n"
        "try: NGram.train('\\n'.join(topics.values()).split('\\n'), order=3, memory='64K', scratch=sys.argv[1])\n"
        "except ValueError as error: print(error)\n"
    )
    result = warm.python("-c", code, tmp_path, check=True)
    assert result.stdout == (
        "A scratch file could not be written: File too large. "
        "Choose another folder for scratch files, or more memory.\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("backend", ENGINES)
def test_a_file_is_trained_to_a_file(backend: Any, tmp_path: Path) -> None:
    text = "\n\n".join(zen()) + "\n\n"
    (tmp_path / "zen.txt").write_text(text)
    (tmp_path / "zen.txt.gz").write_bytes(gzip.compress(text.replace("\n", "\r\n").encode()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Note)
        NGram.train_to(tmp_path / "zen.arpa.gz", tmp_path / "zen.txt.gz", order=2, backend=backend)
    model = trained(tmp_path / "zen.txt", order=2, backend=backend)
    written = NGram.load(tmp_path / "zen.arpa.gz")
    assert written.counts == model.counts
    assert written.perplexity(zen()) == pytest.approx(model.perplexity(zen()), rel=1e-5)


@pytest.mark.parametrize("backend", ENGINES)
def test_standard_input(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"a b\na c")))
    assert trained("-", order=2, backend=backend).counts == [6, 5]


def message(text: Any, **options: Any) -> str:
    with pytest.raises(UserError) as caught:
        trained(text, **options)
    return str(caught.value)


@pytest.mark.parametrize("backend", ENGINES)
def test_bad_texts(backend: Any, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"

    def said(raw: bytes, order: int = 2) -> str:
        path.write_bytes(raw)
        return message(path, order=order, backend=backend).replace(str(path), "text.txt")

    ends = "Remove it: every line is a sentence and gets its ends."
    assert said(b"a b\n\na <s> b\n") == (
        f"text.txt:3: The text has the word <s>, which marks the ends of sentences. {ends}"
    )
    assert said(b"a </s>") == f"text.txt:1: The text has the word </s>, which marks the ends of sentences. {ends}"
    empty = "There are no words in text.txt. Give a text with a sentence on each line."
    assert said(b"") == empty
    assert said(b"\n \t\n") == empty
    assert said(b"a b\nc\n", order=5) == (
        "There are no 5-grams: the longest sentence has 2 words, two ends added. "
        "Use an order of at most 4, or longer sentences."
    )
    assert said("a\nö".encode("latin1")) == (
        "text.txt:2: The text is not UTF-8: byte 0xf6. "
        "Convert it, for example: iconv -f latin1 -t utf-8 text.txt > converted.txt"
    )
    assert said(b"a\n\0") == "text.txt:2: A zero byte: this is not text."
    assert message([["a"], ["New York"]], backend=backend) == (
        "the sentences:2: 'New York' is not one word. A word is text without blanks."
    )
    assert message(tmp_path / "none", backend=backend).endswith("none does not exist. Give the path of a text file.")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"order": 0}, "order=0 is not a whole number from 1 to 20. 3 is usual."),
        ({"order": 21}, "order=21 is not a whole number from 1 to 20. 3 is usual."),
        ({"prune": [1]}, "prune=[1] would leave words out. Begin with 0: all words are kept."),
        ({"prune": [0, -1]}, "prune=[0, -1] are not counts. Give whole numbers from 0 up, such as 0, 0, 1."),
        (
            {"prune": [0, 2, 1]},
            "prune=[0, 2, 1] falls: an n-gram would be kept without what it ends in. Give numbers that never fall.",
        ),
        (
            {"order": 2, "prune": [0, 1, 2]},
            "prune=[0, 1, 2] has 3 numbers for 2 orders. Give one for each at the most.",
        ),
        ({"memory": "1X"}, "memory='1X' is not a size from 64K up. Use one such as 500M or 2G."),
        ({"memory": 10}, "memory=10 is not a size from 64K up. Use one such as 500M or 2G."),
        (
            {"scratch": "/does/not/exist"},
            "scratch='/does/not/exist' is not a folder. Give one with room for the text's n-grams.",
        ),
    ],
)
def test_bad_options(options: dict[str, Any], expected: str) -> None:
    assert message(["a b"], **options) == expected


def test_an_existing_file_is_seen_before_training(tmp_path: Path) -> None:
    (tmp_path / "m.arpa").write_text("mine")

    def never() -> Iterator[str]:
        yield str(1 / 0)

    with pytest.raises(UserError, match="exists already"):
        NGram.train_to(tmp_path / "m.arpa", never())
    with pytest.raises(UserError, match="There are no words"):
        NGram.train_to(tmp_path / "new.arpa", [])
    assert [p.name for p in tmp_path.iterdir()] == ["m.arpa"]
