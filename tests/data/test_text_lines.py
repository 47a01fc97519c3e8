"""Lines of files that are read one after the other: the same as those of the whole file."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

import pytest

from unrolled import UserError
from unrolled.data.readers import text_lines
from unrolled.data.readers.tables import headers, read_table
from unrolled.data.readers.tables.read_table import Row, read_text_column
from unrolled.data.readers.text import read_lines
from unrolled.data.readers.text_lines import TextLines
from unrolled.errors import Note

TEXTS = {
    "plain": b"one\ntwo\n\nthree",
    "ends": b"one\r\ntwo\rand\r\n\r\nthree\n",
    "mark": b"\xef\xbb\xbfone\ntwo\n",
    "blank lines": b"\n \none\n\n",
    "utf-16": "één\ntwee\n".encode("utf-16"),
    "utf-32": "één\ntwee\n".encode("utf-32"),
    "other separators": "a\u2028b\x0bc\x85d\ne\n".encode(),
}


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("ending", [".txt", ".txt.gz"])
def test_the_lines_are_those_of_the_whole_file(kind: str, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{ending}"
    path.write_bytes(gzip.compress(TEXTS[kind]) if ending.endswith("gz") else TEXTS[kind])
    lines = TextLines(path)
    assert list(lines) == read_lines(path) == list(lines)  # it can be read again


@pytest.mark.parametrize("content", [b"", b" \n\n", b"one\ntw\xe9\n", b"one\nt\0wo\n", b"\xff\xfeo\0n"])
def test_the_errors_are_those_of_the_whole_file(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    with pytest.raises(UserError) as whole:
        read_lines(path)
    with pytest.raises(UserError) as lines:
        list(TextLines(path))
    assert str(lines.value) == str(whole.value)


def outcome(path: Path, **options: Any) -> tuple[list[Row], str, list[str]]:
    """The rows, the error at their end and the notes."""
    rows, said, notes = list[Row](), "", list[str]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_table, "note", notes.append)
        patch.setattr(headers, "note", notes.append)
        try:
            for row in read_text_column(path, None, "text", 2, beside=["label"], **options):
                rows.append(row)
        except UserError as error:
            said = str(error)
    return rows, said, notes


def random_table(draw: random.Random, ending: str) -> bytes:
    """A table as people write them: with or without header, quotes, ragged rows, repeated headers."""
    separator = "\t" if ending in (".tsv", ".txt") else draw.choice(",;")
    header = draw.choice([["label", "text"], ["id", "text", "label"], None, None])
    width = len(header or "ab")
    cells = ["good", "bad", "a b", "c, d", "", "7", "it's", 'say "x"', "text"]
    rows = [header] if header else []
    for _ in range(draw.randint(1, 30)):
        row = [draw.choice(cells) for _ in range(width)]
        if draw.random() < 0.01:
            row = row[:-1]
        if draw.random() < 0.02 and header:
            row = header
        rows.append(row)
    quoted = ending == ".csv" or draw.random() < 0.3

    def cell(text: str) -> str:
        if quoted and (draw.random() < 0.3 or separator in text or '"' in text):
            return '"' + text.replace('"', '""') + ("\nmore" if draw.random() < 0.1 else "") + '"'
        return text

    end = draw.choice(["\n", "\r\n"])
    return end.join(separator.join(map(cell, row)) for row in rows).encode() + end.encode()


@pytest.mark.parametrize("ending", [".tsv", ".csv", ".txt"])
def test_a_file_longer_than_its_head_gives_the_same_rows(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, draw, different = tmp_path / f"a{ending}", random.Random(ending), 0
    for _ in range(100):
        path.write_bytes(random_table(draw, ending))
        monkeypatch.setattr(text_lines, "HEAD", 1 << 23)
        whole = outcome(path)
        monkeypatch.setattr(text_lines, "HEAD", 150)  # the head decides on the header and quotes
        head = outcome(path)
        if head[2] != whole[2] or head[1] != whole[1]:  # the rest would have decided otherwise
            different += 1
            continue
        assert head[0] == whole[0]
    assert different < 50


def test_rows_of_json_lines_come_one_after_the_other(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one", "id": 1}\n\n{"text": "two", "id": 2}\n[3]\n')
    rows = read_text_column(path, None, "text", 1, keep=["id"])
    assert next(rows) == Row(("one",), f"{path}:1", {"id": 1})
    assert next(rows).place == f"{path}:3"
    with pytest.raises(UserError, match=r"a\.jsonl:4 is list\."):
        next(rows)


def test_a_note_tells_repeated_headers(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("label,text\ngood,one\nlabel,text\nbad,two\nlabel,text\n")
    with pytest.warns(Note, match=r"a\.csv:3 repeats the header: 2 such rows are left out\."):
        assert [row.values for row in read_text_column(path, None, "text", 2)] == [("one",), ("two",)]
