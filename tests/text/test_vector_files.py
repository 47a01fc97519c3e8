"""Files of word vectors: every form reads to the same numbers, and a wrong one says where it is wrong."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unrolled import UserError
from unrolled.errors import Note
from unrolled.text import Vectors, vector_files, vector_writing

WORDS = ["the", ",", "“", "naïve", "日本", "state-of-the-art", "1", "U\xa0S", "a\x85b", '"', "x,y", "#"]
MATRIX = np.random.default_rng(0).normal(size=(len(WORDS), 3)).astype(np.float32)
LINES = [f"{word} {' '.join(map(repr, row.tolist()))}\n" for word, row in zip(WORDS, MATRIX, strict=True)]
HEADER = f"{len(WORDS)} 3\n"


def write_binary(path: Path, *, line_ends: bool) -> None:
    rows = zip(WORDS, MATRIX, strict=True)
    end = b"\n" if line_ends else b""
    path.write_bytes(HEADER.encode() + b"".join(w.encode() + b" " + struct.pack("<3f", *v) + end for w, v in rows))


def write_npz_and_words(path: Path) -> None:
    np.savez_compressed(path, vectors=MATRIX)
    path.with_name("words.txt").write_text("\n".join(WORDS) + "\n")


FORMS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "word2vec": ("v.vec", lambda p: p.write_text(HEADER + "".join(LINES))),
    "GloVe": ("v.txt", lambda p: p.write_text("".join(LINES))),
    "word2vec.c's trailing blanks": ("v.txt", lambda p: p.write_text(HEADER + "".join(LINES).replace("\n", " \n"))),
    "Windows": ("v.txt", lambda p: p.write_bytes("".join(LINES).replace("\n", "\r\n").encode("utf-8-sig"))),
    "tabs": ("v.txt", lambda p: p.write_text("".join(LINES).replace(" ", "\t"))),
    "two blanks, blank lines": ("v.txt", lambda p: p.write_text("".join(LINES).replace(" ", "  ", 9) + "\n\n")),
    "no last line end": ("v.txt", lambda p: p.write_text("".join(LINES).removesuffix("\n"))),
    "word2vec, packed": ("v.vec.gz", lambda p: p.write_bytes(gzip.compress((HEADER + "".join(LINES)).encode()))),
    "GloVe, packed": ("v.txt.gz", lambda p: p.write_bytes(gzip.compress("".join(LINES).encode()))),
    "binary": ("v.bin", lambda p: write_binary(p, line_ends=True)),
    "binary without line ends": ("v.bin", lambda p: write_binary(p, line_ends=False)),
    "npz": ("v.npz", lambda p: np.savez(p, vectors=MATRIX.astype(np.float64), words=np.array(WORDS))),
    "npz and words.txt": ("v.npz", write_npz_and_words),
}


@pytest.fixture(params=FORMS)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    name, write = FORMS[request.param]
    write(tmp_path / name)
    return tmp_path / name


@pytest.mark.parametrize("block", [64, 1 << 23], ids=["small blocks", "one block"])
def test_every_form_reads_to_the_same_vectors(file: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_files, "BLOCK", block)
    vectors = Vectors.read(file)
    assert vectors.words == WORDS
    assert vectors.matrix.dtype == np.float32
    assert np.array_equal(vectors.matrix, MATRIX)


@pytest.mark.parametrize("block", [64, 1 << 23], ids=["small blocks", "one block"])
def test_only_what_is_wanted_is_read(file: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_files, "BLOCK", block)
    assert Vectors.read(file, most=2).words == WORDS[:2]
    assert Vectors.read(file, most=100).words == WORDS
    some = Vectors.read(file, keep=iter(["1", "The", "nowhere"]))
    assert some.words == ["the", "1"]
    assert np.array_equal(some.matrix, MATRIX[[0, 6]])
    both = Vectors.read(file, most=2, keep=["1"])
    assert both.words == ["the", ",", "1"]
    assert np.array_equal(both.matrix, MATRIX[[0, 1, 6]])


def test_most_reads_no_further(tmp_path: Path) -> None:
    """Errors after the wanted rows do not matter."""
    file = tmp_path / "v.txt"
    file.write_text("9 2\na 1 2\nb 3 4\nc rubbish\n")
    assert Vectors.read(file, most=2).words == ["a", "b"]


def test_words_may_hold_blanks(tmp_path: Path) -> None:
    """As in GloVe's 840B file."""
    file = tmp_path / "v.txt"
    file.write_text("the 1 2\n. . . 3 4\nat name@domain.com 5 6\n")
    vectors = Vectors.read(file)
    assert vectors.words == ["the", ". . .", "at name@domain.com"]
    assert vectors.matrix.tolist() == [[1, 2], [3, 4], [5, 6]]


words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\t \0\ufeff"), min_size=1, max_size=8)
numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize("name", ["v.txt", "v.vec.gz", "v.npz"])
@settings(deadline=None, max_examples=30)
@given(rows=st.dictionaries(words, st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=6))
def test_written_files_read_back_bit_by_bit(
    name: str, rows: dict[str, list[float]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("vectors") / name
    vectors = Vectors(rows, list(rows.values()))
    vectors.write(path)
    again = Vectors.read(path)
    assert again.words == vectors.words
    assert again.matrix.tobytes() == vectors.matrix.tobytes()
    assert [p.name for p in path.parent.iterdir()] == [name]


@pytest.mark.parametrize("name", ["v.txt", "v.npz"])
def test_writing_overwrites_nothing(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text("dear")
    with pytest.raises(UserError) as error:
        Vectors(["a"], [[1.0]]).write(path)
    assert str(error.value) == f"{path} exists already. Choose another name, or remove it first."
    assert path.read_text() == "dear"


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(vector_writing, "_lines_of", full)
    with pytest.raises(UserError, match=r"v\.txt could not be written: No space left on device\. Choose another place"):
        Vectors(["a"], [[1.0]]).write(tmp_path / "v.txt")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("word", ["a\nb", "a\tb", "", " ", "a ", "a  b", "a 5"])
def test_a_word_that_text_cannot_hold_is_refused(word: str, tmp_path: Path) -> None:
    vectors = Vectors([word, "b"], [[1.0], [2.0]])
    with pytest.raises(UserError) as error:
        vectors.write(tmp_path / "v.txt")
    assert str(error.value) == f"The word {word!r} cannot be written as a line of text. Write an .npz file."
    vectors.write(tmp_path / "v.npz")
    assert Vectors.read(tmp_path / "v.npz").words == [word, "b"]


def test_words_that_are_not_kept_are_not_counted(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    file = tmp_path / "v.txt"
    file.write_bytes(b"a 1\nb 2\nb 3\n\xff 4\n")
    assert Vectors.read(file, keep=["a"]).words == ["a"]
    assert not recwarn


def test_a_word_that_stands_twice_is_counted(tmp_path: Path) -> None:
    file = tmp_path / "v.txt"
    file.write_text("4 1\na 1\nb 2\na 3\na 4\n")
    with pytest.warns(Note, match=r"v\.txt: 2 words are repeated: the first counts\. The first of them: 'a'\.$"):
        vectors = Vectors.read(file)
    assert vectors.words == ["a", "b"]
    assert vectors.matrix.tolist() == [[1], [2]]


def test_half_a_character_stops_nothing(tmp_path: Path) -> None:
    file = tmp_path / "v.txt"
    file.write_bytes(b"a 1\n\xe6\x97 2\n\xef\xbf\xbdb 3\n")
    with pytest.warns(Note, match=r"v\.txt: 1 words are not UTF-8\. The first of them: '\ufffd'\.$"):
        assert Vectors.read(file).words == ["a", "\ufffd", "\ufffdb"]


EQUAL = "Expected a word and as many numbers on every line."
KIND = "Give the path of a word2vec, GloVe or npz file."


@pytest.mark.parametrize("block", [8, 1 << 23], ids=["small blocks", "one block"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", f"{{file}} is empty. {KIND}"),
        ("0 5\n", f"{{file}} is empty. {KIND}"),
        ("2 0\na\n", "{file}:1: the vectors have 0 numbers. Expected the line WORDS WIDTH, 1 to 100000."),
        ("2 9999999999\na 1\n", "{file}:1: the vectors have 9999999999 numbers. Expected the line WORDS WIDTH, 1 to"),
        ("hello\n", "{file}:1: 'hello' is not a word and its vector. Expected a word and numbers between blanks."),
        ("a 1 2\nb 3\n", f"{{file}}:2: 'b 3' has 1 numbers, not 2. {EQUAL}"),
        ("a 1 2\n\nb 3 4 5\n", f"{{file}}:3: 'b 3 4 5' has more than 2 numbers. {EQUAL}"),
        ("a 1 2\n 3 4\n", f"{{file}}:2: the line has numbers, but no word before them. {EQUAL}"),
        ("1 2\na 1 x\n", f"{{file}}:2: 'x', value 2, is not a number. {EQUAL}"),
        ("a 1 2\nb 1,5 2\n", f"{{file}}:2: '1,5', value 1, is not a number. {EQUAL}"),
        ("a 1 2\nb 1_0 2\n", f"{{file}}:2: '1_0', value 1, is not a number. {EQUAL}"),
        ("a 1 2\nb 1 nan\n", "{file}:2: value 2 is nan. Expected finite numbers."),
        ("a 1 2\nb -inf 2\n", "{file}:2: value 1 is -inf. Expected finite numbers."),
        ("a 1 2\nb 1e39 2\n", "{file}:2: value 1 is 1e39. Expected finite numbers."),
        (
            "3 1\na 1\nb 2\n",
            "{file}: its first line declares 3 words, 2 follow. "
            "The file is truncated or was concatenated: download it again, or correct the first line.",
        ),
        ("1 1\na 1\nb 2\n", "{file}: its first line declares 1 words, 2 follow. The file is truncated or was c"),
        ("PK\3\4", "{file} is a zip archive. Unpack it first: unzip {file}"),
        (
            "a 1\0 2",
            "{file} is not text: it has a zero byte at offset 3. If it is word2vec's binary format, name it .bin.",
        ),
    ],
)
def test_a_wrong_text_says_where(
    content: str, message: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_files, "BLOCK", block)
    file = tmp_path / "v.txt"
    file.write_text(content)
    with pytest.raises(UserError) as error:
        Vectors.read(file)
    assert str(error.value).startswith(message.format(file=file))


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_files, "LONGEST_LINE", 100)
    file = tmp_path / "v.txt"
    file.write_text("a 1\n" + "x" * 101)
    with pytest.raises(UserError, match=r"v\.txt:2: the line has no end\. Expected one word and its vector\.$"):
        Vectors.read(file)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"what is this\n", "is not word2vec's binary format. Expected the first line: WORDS WIDTH."),
        (b"1 100001\na ", ":1: the vectors have 100001 numbers. Expected the line WORDS WIDTH, 1 to 100000."),
        (b"2 2\na " + bytes(8) + b"b " + bytes(5), "declares 2 words, but ends after 1. The file is truncated."),
        (b"1 1\na " + struct.pack("<f", np.nan), ": the vector of 'a' holds NaN or infinity. Expected finite numbers."),
    ],
)
def test_a_wrong_binary_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "v.bin"
    file.write_bytes(content)
    with pytest.raises(UserError) as error:
        Vectors.read(file)
    assert str(error.value) in (f"{file} {message}", f"{file}{message}")


ONE = np.ones((2, 3), dtype=np.float32)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"other": ONE},
            "{file} has no array 'vectors'. Expected `vectors` (N, D), and `words` (N,) or a words.txt beside it.",
        ),
        (
            {"vectors": ONE},
            "{file} has no array 'words', and there is no {folder}/words.txt. Expected the words in one of them.",
        ),
        (
            {"vectors": ONE[0], "words": np.array(["a"])},
            "{file}: vectors has shape (3,) and type float32. Expected floating-point numbers (N, D).",
        ),
        (
            {"vectors": ONE.astype(int), "words": np.array(["a", "b"])},
            "{file}: vectors has shape (2, 3) and type int64. Expected floating-point numbers (N, D).",
        ),
        (
            {"vectors": ONE, "words": np.array([1, 2])},
            "{file}: words has shape (2,) and type int64. Expected text (N,).",
        ),
        (
            {"vectors": ONE, "words": np.array(["a"])},
            "words in {file} has 1 words, {file} 2 vectors. Expected a word for each.",
        ),
        (
            {"vectors": ONE * np.inf, "words": np.array(["a", "b"])},
            "{file}: the vector of 'a' holds NaN or infinity. Expected finite numbers.",
        ),
        (
            {"vectors": ONE, "words": np.array(["a", "b"], dtype=object)},
            "{file} holds Python objects, which are not read: they could run code. "
            "Store the words as an array of text: np.array(words, dtype=str).",
        ),
    ],
)
def test_a_wrong_npz_is_refused(arrays: dict[str, Any], message: str, tmp_path: Path) -> None:
    file = tmp_path / "v.npz"
    np.savez(file, **arrays)
    with pytest.raises(UserError) as error:
        Vectors.read(file)
    assert str(error.value) == message.format(file=file, folder=tmp_path)


def test_files_that_are_not_what_their_names_say(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "whole.npz", vectors=np.random.default_rng(0).normal(size=(99, 9)))
    packed = (tmp_path / "whole.npz").read_bytes()
    for name, content, message in [
        ("v.npz", b"hello", "is not a whole npz file"),
        ("cut.npz", packed[: len(packed) // 2], "is not a whole npz file"),
        ("damaged.npz", packed[:200] + bytes(100) + packed[300:], "is not a whole npz file"),
        ("v.txt.gz", b"hello", "is not a whole gzip file"),
        ("cut.txt.gz", gzip.compress("".join(LINES).encode())[:-20], "is not a whole gzip file"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=message):
            Vectors.read(tmp_path / name)
    with pytest.raises(UserError) as error:
        Vectors.read(tmp_path / "nowhere.txt")
    assert str(error.value) == f"{tmp_path}/nowhere.txt does not exist. {KIND}"
    with pytest.raises(UserError) as error:
        Vectors.read(tmp_path)
    assert str(error.value) == f"{tmp_path} is a directory. {KIND}"


def test_words_beside_an_npz_file_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "v.npz"
    np.savez(file, vectors=ONE)
    (tmp_path / "words.txt").write_bytes(b"a\n\xff\n")
    with pytest.raises(UserError, match=r"words\.txt:2 is not UTF-8\. Convert it, for example with iconv\.$"):
        Vectors.read(file)


def test_wrong_choices_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "v.txt"
    file.write_text("a 1\n")
    with pytest.raises(UserError, match=r"^most=0 is not a number of rows\. Expected a whole number from 1 on"):
        Vectors.read(file, most=0)
    with pytest.raises(UserError, match=r"^keep='cat' is one text\. Expected the words: \['cat'\]\.$"):
        Vectors.read(file, keep="cat")
    with pytest.raises(UserError, match=r"v\.txt has no vector for any of the 1 selected words\.$"):
        Vectors.read(file, keep=["b"])
