"""ARPA files: what is written is read back, and a bad line is named."""

from __future__ import annotations

import codecs
import gzip
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.search.ngram.engines import ENGINES
from tests.search.ngram.test_scoring import SMALL
from unrolled.errors import Note, UserError
from unrolled.search import NGram

ORDERS = (1, 2, 3)


@pytest.mark.parametrize("writer", ENGINES)
@pytest.mark.parametrize("reader", ENGINES)
@pytest.mark.parametrize("name", ["m.arpa", "m.arpa.gz"])
def test_a_written_file_reads_back(name: str, reader: Any, writer: Any, tmp_path: Path) -> None:
    numbers = iter(f"-{i}.{7919 * i % 100003}" for i in range(1, 20))
    text = re.sub(r"-\d+(\.\d+)?\t", lambda _: next(numbers) + "\t", SMALL)
    (tmp_path / "given.arpa").write_text(text)
    first = NGram.load(tmp_path / "given.arpa", backend=writer)
    first.save(tmp_path / name)
    second = NGram.load(tmp_path / name, backend=reader)
    for order in ORDERS:
        given, found = list(first.ngrams(order)), list(second.ngrams(order))
        assert sorted(entry.words for entry in found) == sorted(entry.words for entry in given)
        again = {entry.words: entry[1:] for entry in found}
        assert all(again[entry.words] == pytest.approx(entry[1:], rel=1e-7) for entry in given)
    second.save(tmp_path / f"again-{name}")
    if reader == "native":  # its numbers are those of the file
        assert (tmp_path / f"again-{name}").read_bytes() == (tmp_path / name).read_bytes() or writer == "reference"


@pytest.mark.parametrize("backend", ENGINES)
def test_blanks_windows_lines_and_text_before_the_data(backend: Any, tmp_path: Path) -> None:
    text = "made by hand\n" + SMALL.replace("\t", "  ").replace("\n", "\r\n")
    (tmp_path / "m.arpa").write_bytes(text.encode())
    assert NGram.load(tmp_path / "m.arpa", backend=backend).counts == [6, 4, 1]


@pytest.mark.parametrize("backend", ENGINES)
@pytest.mark.parametrize("piece", [1, 100])
def test_a_byte_order_mark_is_left_out(
    backend: Any, piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unrolled.search.ngram.arpa.PIECE", piece)
    marked = SMALL.lstrip().encode("utf-8-sig")
    (tmp_path / "m.arpa").write_bytes(marked)
    (tmp_path / "m.arpa.gz").write_bytes(gzip.compress(marked))
    for name in ("m.arpa", "m.arpa.gz"):
        assert NGram.load(tmp_path / name, backend=backend).counts == [6, 4, 1]


@pytest.mark.parametrize("backend", ENGINES)
def test_words_with_other_blanks(backend: Any, tmp_path: Path) -> None:
    (tmp_path / "m.arpa").write_text(SMALL.replace("c\n", "c\u00a0d\u2028e\n"))
    assert "c\u00a0d\u2028e" in NGram.load(tmp_path / "m.arpa", backend=backend)


@pytest.mark.parametrize("backend", ENGINES)
@pytest.mark.parametrize("piece", [1, 7, 100])
def test_pieces_end_anywhere(backend: Any, piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unrolled.search.ngram.arpa.PIECE", piece)
    (tmp_path / "m.arpa").write_text(SMALL.rstrip().replace("c\n", "größer\n"))
    assert "größer" in NGram.load(tmp_path / "m.arpa", backend=backend)


def changed(line: int, new: str | None) -> str:
    lines = SMALL.split("\n")
    lines[line - 1 : line] = [] if new is None else [new]
    return "\n".join(lines)


FIELDS = "Expected a log10 probability, 1 word, and a back-off or none."
WHOLE = "The file was cut or changed: get the whole of it."
BAD = [
    (changed(11, "-0.8"), f"11: Got 1 fields in a line of the 1-grams. {FIELDS}"),
    (changed(11, "-0.8\ta b\t0\t0"), f"11: Got 5 fields in a line of the 1-grams. {FIELDS}"),
    (changed(18, None), "20: There are 3 2-grams, the header says 4. " + WHOLE),
    (changed(4, "ngram 2=5"), "21: There are 4 2-grams, the header says 5. " + WHOLE),
    (changed(11, "zero\ta\t0"), "11: Got 'zero' as a log10 probability. Expected a number."),
    (changed(11, "nan\ta\t0"), "11: Got 'nan' as a log10 probability. Expected a number."),
    (changed(11, "0.2\ta\t0"), "11: The log10 probability 0.2 is above 0."),
    (changed(11, "-1\ta\tx"), "11: Got 'x' as a back-off. Expected a number."),
    (changed(11, "-1\ta\t-inf"), "11: Got '-inf' as a back-off. Expected a number."),
    (changed(22, "-1\t<s> a b\t-2"), "22: An n-gram of the highest order has the back-off -2. "
     "Nothing is longer: leave it out."),
    (changed(11, "-inf\ta\t0"), "11: Got '-inf' as a log10 probability. Expected a number."),
    (changed(11, "-1e999\ta\t0"), "11: Got '-1e999' as a log10 probability. Expected a number."),
    (changed(11, "+-1\ta\t0"), "11: Got '+-1' as a log10 probability. Expected a number."),
    (changed(11, "-2000\ta\t0"), "11: Got '-2000' as a log10 probability. "
     "Expected log10 of a probability; -99 stands for none."),
    (changed(11, "-1\ta\t65536"), "11: Got '65536' as a back-off. "
     "Expected log10 of a probability; -99 stands for none."),
    (changed(22, "-1\tc a b"), "22: The context 'c a' has no 2-gram. "
     "Every context of an n-gram is an n-gram itself: the file was cut or changed."),
    (SMALL + "\\data\\\n", "25: There is text after \\end\\. Two files may have been joined: give one model."),
    (changed(3, "ngram 1=+6"), "3: Got 'ngram 1=+6'. Expected a line such as: ngram 2=1000"),
    (changed(18, "-1\ta z"), "18: The word 'z' has no unigram."),
    (changed(18, "-1\ta b"), "18: The 2-gram 'a b' stands here again. Leave one of them out."),
    (changed(12, "-1\ta"), "12: The 1-gram 'a' stands here again. Leave one of them out."),
    (changed(3, "ngram one=6"), "3: Got 'ngram one=6'. Expected a line such as: ngram 2=1000"),
    (changed(3, "ngram 2=6"), "3: Got the count of 2-grams, expected that of 1-grams."),
    (changed(15, "\\3-grams:"), "15: Got \\3-grams:, expected \\2-grams:."),
    (changed(24, ""), "24: The file ends before \\end\\. It was cut off: get the whole of it."),
    ("\\data\\\n\\1-grams:\n", "2: There are no counts after \\data\\. Expected a line such as: ngram 1=1000"),
    ("a text\n", "1: The file has no line \\data\\: it is not an ARPA file."),
    (
        "\\data\\\nngram 1=1\n\\1-grams:\n-1\t<s>\n\\end\\\n",
        "5: The model has no unigram </s>. Every ARPA file needs <s> and </s>.",
    ),
]  # fmt: skip


@pytest.mark.parametrize("backend", ENGINES)
@pytest.mark.parametrize(("text", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_a_bad_line_is_named(text: str, message: str, backend: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.arpa").write_text(text)
    with pytest.raises(UserError) as caught:
        NGram.load(tmp_path / "bad.arpa", backend=backend)
    assert str(caught.value) == f"{tmp_path}/bad.arpa:{message}"


@pytest.mark.parametrize("backend", ENGINES)
def test_text_that_is_not_utf8(backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unrolled.search.ngram.arpa.PIECE", 10)
    path = tmp_path / "bad.arpa"
    path.write_bytes(SMALL.replace("c\n", "größer\n").encode("latin1"))
    with pytest.raises(UserError) as caught:
        NGram.load(path, backend=backend)
    assert str(caught.value) == (
        f"{path}:13: The text is not UTF-8: byte 0xf6. "
        f"Convert it, for example: iconv -f latin1 -t utf-8 {path} > converted.arpa"
    )
    path.write_bytes(b"\\data\\\n\0")
    with pytest.raises(UserError, match=r"bad\.arpa:2: A zero byte: this is not text\.$"):
        NGram.load(path, backend=backend)


@pytest.mark.parametrize("backend", ENGINES)
def test_files_that_are_no_text(backend: Any, tmp_path: Path) -> None:
    path = tmp_path / "bad.arpa"
    for raw, message in (
        (b"", f"{path} is empty. Give an n-gram model, .arpa or .arpa.gz."),
        (codecs.BOM_UTF8, f"{path} is empty. Give an n-gram model, .arpa or .arpa.gz."),
        (b"PK\x03\x04-\0\0\0\xde\xe8", f"{path}:1: The byte 0x03: this is not text."),
        (b"a\n\xde\xe8\0", f"{path}:2: A zero byte: this is not text."),
        (gzip.compress(SMALL.encode()), f"{path} is packed with gzip. Give it a name that ends in .gz, or unpack it."),
    ):
        path.write_bytes(raw)
        with pytest.raises(UserError) as caught:
            NGram.load(path, backend=backend)
        assert str(caught.value) == message


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        NGram.load(tmp_path / "none.arpa")
    assert str(caught.value) == f"{tmp_path}/none.arpa does not exist. Give the path of an ARPA file."
    (tmp_path / "cut.arpa.gz").write_bytes(gzip.compress(SMALL.encode())[:-9])
    with pytest.raises(UserError, match="is not a whole gzip file"):
        NGram.load(tmp_path / "cut.arpa.gz")
    (tmp_path / "m.arpa").write_text(SMALL)
    model = NGram.load(tmp_path / "m.arpa")
    with pytest.raises(UserError, match=r"m\.arpa exists already\. Choose another name, or remove it first\.$"):
        model.save(tmp_path / "m.arpa")
    with pytest.raises(UserError, match=r"could not be written: No such file or directory\. Choose another place\.$"):
        model.save(tmp_path / "none" / "m.arpa")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cut.arpa.gz", "m.arpa"]


def test_an_order_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "m.arpa").write_text(SMALL)
    with pytest.raises(UserError, match=r"^There are no 4-grams\. The model has orders 1 to 3\.$"):
        list(NGram.load(tmp_path / "m.arpa").ngrams(4))


@pytest.mark.parametrize("backend", ENGINES)
def test_files_of_other_tools_are_read(backend: Any, tmp_path: Path) -> None:
    """SRILM's pruning leaves out endings ('b c' of 'a b c'), never contexts; `-99` and a sign are usual."""
    text = SMALL.replace("ngram 3=1", "ngram 3=2").replace("\n\n\\end", "\n-0.5\ta b c\n\n\\end")
    assert "b c" not in {" ".join(e.words) for e in _loaded(text, backend, tmp_path / "a.arpa").ngrams(2)}
    assert _loaded(changed(11, "-.5\ta\t+0.25"), backend, tmp_path / "b.arpa").counts == [6, 4, 1]


@pytest.mark.parametrize("backend", ENGINES)
def test_scores_that_are_no_probabilities_are_said(backend: Any, tmp_path: Path) -> None:
    with pytest.warns(Note, match=r"m\.arpa: the probabilities of the 1-grams sum to 2\.287, not to 1\."):
        _loaded(changed(11, "0\ta\t0").replace("-0.9\tb", "-0.01\tb"), backend, tmp_path / "m.arpa")


@pytest.mark.parametrize("backend", ENGINES)
@pytest.mark.parametrize("prune", [(0,), (0, 1), (0, 0, 1), (0, 1, 2)])
def test_trained_models_pass_every_check(backend: Any, prune: tuple[int, ...], tmp_path: Path) -> None:
    text = [f"{a} {b} {a} {c}" for a in "abc" for b in "abd" for c in "ade"] * 2 + ["a b", "e d c b a"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of discounts that so little text cannot give
        NGram.train_to(tmp_path / "m.arpa", text, order=4, prune=prune, backend=backend)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert NGram.load(tmp_path / "m.arpa", backend=backend).order == 4


def _loaded(text: str, backend: Any, path: Path) -> NGram:
    path.write_text(text)
    return NGram.load(path, backend=backend)
