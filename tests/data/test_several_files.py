"""Folders, patterns, packed files and UTF-16: every reader gives what it gives for one plain file."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.cli.test_generate import call
from unrolled.data.readers.labelled import read_labelled
from unrolled.data.readers.media.captions import read_captions
from unrolled.data.readers.media.transcripts import read_transcripts
from unrolled.data.readers.pairs import read_pairs
from unrolled.data.readers.series.read_series import read_series
from unrolled.data.readers.tables.read_table import read_text_column
from unrolled.data.readers.tagged.frames import read_tagged_frames
from unrolled.data.readers.tagged.read_sentences import read_sentences
from unrolled.data.readers.text import read_text
from unrolled.errors import UserError
from unrolled.text.globs import files_of


def _examples(path: Path) -> list[Any]:
    return [(one.input, one.labels) for one in read_labelled(path)]


def _series(path: Path) -> list[Any]:
    return [row for one in read_series(path).series for row in one.values.tolist()]


READERS: dict[str, tuple[str, str, str, Callable[[Path], Any]]] = {
    "texts": ("a.txt", "one\ntwo\n", "three\n", lambda path: read_text(path).split("\n")[:-1]),
    "labels, tsv": ("a.tsv", "x\ta café\ny\tb\n", "x\tc\n", _examples),
    "labels, csv": ("a.csv", "label,text\nx,a café\ny,b\n", "text,label\nc,x\n", _examples),
    "labels, jsonl": ("a.jsonl", '{"label": "x", "text": "a"}\n', '{"text": "b", "label": "y"}\n', _examples),
    "labels, fastText": ("a.txt", "__label__x a b\n__label__y c\n", "__label__x d\n", _examples),
    "pairs": ("a.tsv", "ein\tone\n", "zwei\ttwo\n", lambda p: [(one.source, one.target) for one in read_pairs(p)]),
    "column": (
        "a.csv",
        "label,text\nx,a\n",
        "label,text\ny,b\n",
        lambda p: _texts(read_text_column(p, None, "text", 2)),
    ),
    "sentences": (
        "a.txt",
        "He PRP\nran VBD\n\nYes UH\n",
        "No UH\n",
        lambda p: [(one.words, one.tags) for one in read_sentences(p)],
    ),
    "frames": (
        "a.csv",
        "x,label\n1,up\n2,down\n",
        "x,label\n3,up\n",
        lambda p: [
            row for one in read_tagged_frames(p) for row in zip(one.frames.tolist(), one.tags or (), strict=True)
        ],
    ),
    "series": ("a.csv", "y,z\n1,2\n3,4\n", "y,z\n5,6\n7,8\n", _series),
    "transcripts": (
        "a.tsv",
        "a.wav\tone\n",
        "b.wav\ttwo\n",
        lambda p: [(_name(one.input), one.text) for one in read_transcripts(p)],
    ),
    "captions": (
        "a.tsv",
        "a.png\tone\n",
        "b.png\ttwo\n",
        lambda p: [(one.image, one.captions) for one in read_captions(p)],
    ),
}


def _name(given: Any) -> str:
    return str(given.path.name)


def _texts(rows: Any) -> list[str]:
    return [row.values[0] for row in rows]


def _written(folder: Path, name: str, *parts: str) -> list[Path]:
    folder.mkdir()
    stem, _, suffix = name.partition(".")
    files = [folder / f"{stem}{number}.{suffix}" for number in range(len(parts))]
    for file, text in zip(files, parts, strict=True):
        file.write_text(text)
    return files


def zst(path: Path, content: bytes) -> Path:
    with pa.CompressedOutputStream(str(path), "zstd") as file:
        file.write(content)
    return path


@pytest.mark.parametrize("kind", READERS)
def test_folders_patterns_and_packed_files(kind: str, tmp_path: Path) -> None:
    name, first, second, read = READERS[kind]
    one, two = _written(tmp_path / "several", name, first, second)
    both = read(one) + read(two)
    assert len(both) > len(read(one)) > 0
    assert read(tmp_path / "several") == both
    assert read(tmp_path / "several" / f"*{one.suffix}") == both
    assert read(tmp_path / "sev*" / "?[01].*") == both
    raw = first.encode()
    packed = tmp_path / "packed"
    packed.mkdir()
    (packed / f"{name}.gz").write_bytes(gzip.compress(raw))
    assert read(packed / f"{name}.gz") == read(one)
    assert read(zst(packed / f"{name}.zst", raw)) == read(one)
    if kind != "captions":  # those of one picture are together
        assert read(packed) == read(one) * 2
    (tmp_path / name).write_bytes(first.encode("utf-16"))
    assert read(tmp_path / name) == read(one)


def test_npz_and_parquet_in_folders(tmp_path: Path) -> None:
    for number in range(2):
        np.savez(tmp_path / f"{number}.npz", frames=np.full((2, 3, 1), number), labels=["a", "b"])
    assert [one.labels for one in read_labelled(tmp_path)] == [("a",), ("b",)] * 2
    (tmp_path / "tables").mkdir()
    for number in range(2):
        table = pa.table({"text": [f"text {number}"], "label": ["x"]})
        pa.parquet.write_table(table, tmp_path / f"tables/{number}.parquet")
    assert [one.input for one in read_labelled(tmp_path / "tables")] == ["text 0", "text 1"]


def test_hidden_files_are_no_data_and_others_are_named(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", ".DS_Store", "_SUCCESS", "README.md"):
        (tmp_path / name).write_text("x")
    with pytest.warns(match=r"1 files of other kinds are left out: README\.md"):
        assert [file.name for file in files_of(tmp_path, (".csv",))] == ["a.csv", "b.csv"]
    assert [file.name for file in files_of(tmp_path)] == ["README.md", "a.csv", "b.csv"]
    (tmp_path / "a*b.csv").write_text("y")
    assert files_of(tmp_path / "a*b.csv") == [tmp_path / "a*b.csv"]


def test_a_series_in_two_files_is_an_error(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"{number}.csv").write_text(
            "site,y\n" + "".join(f"{site},{n}\n" for n in range(4) for site in "pq")
        )
    with pytest.raises(UserError) as caught:
        read_series(tmp_path, sequence_column="site")
    assert str(caught.value) == (
        f"The series 'p' is in two files: {tmp_path}/0.csv, site p and {tmp_path}/1.csv, site p. Join these files into "
        "one, in the order of their times."
    )


def test_what_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    whole = zst(tmp_path / "a.tsv.zst", b"x\ta\ny\tb\n" * 1000)
    (tmp_path / "cut.tsv.zst").write_bytes(whole.read_bytes()[:-4])
    (tmp_path / "no.tsv.zst").write_bytes(b"x\ta\n")
    for path, message in (
        (tmp_path / "empty", f"The folder {tmp_path}/empty holds no data."),
        (
            tmp_path / "*.csv",
            f"No file matches {tmp_path}/*.csv. Give a file, a folder, or a pattern such as data/*.csv.",
        ),
        (tmp_path / "cut.tsv.zst", f"{tmp_path}/cut.tsv.zst is not a whole Zstandard file"),
        (tmp_path / "no.tsv.zst", f"{tmp_path}/no.tsv.zst is not a whole Zstandard file"),
    ):
        with pytest.raises(UserError) as caught:
            read_labelled(path)
        assert str(caught.value).startswith(message)
    monkeypatch.setattr("unrolled.text.packed.LARGEST", 1000)
    monkeypatch.setattr("unrolled.text.packed.RATIO", 2)
    with pytest.raises(UserError, match=r"bytes and unpacks to more than 1,000\. Unpack it and check its content\.$"):
        read_labelled(whole)


def test_a_folder_from_the_command_line(tmp_path: Path) -> None:
    rows = "".join(f"{'good' if n % 2 else 'bad'}\t{'fine' if n % 2 else 'poor'} {n}\n" for n in range(20))
    _written(tmp_path / "data", "a.tsv", rows, rows.replace("fine", "very fine"))
    keys = ["--set", "train.max_steps=2", "--set", "model.hidden_size=8", "--set", "train.eval_every=2"]
    code, _, errors = call("train", "classify", "--train", tmp_path / "data", "--out", tmp_path / "run", *keys)
    assert code == 0, errors
    code, out, _ = call("eval", tmp_path / "run", tmp_path / "data/*.tsv", "--json")
    assert code == 0
    assert '"examples": 40' in out
