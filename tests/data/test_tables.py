"""Tables of every kind give the same rows; what is wrong with one is said with its line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from unrolled import UserError
from unrolled.data import Batch, Buckets, held_out, read_ragged, read_table
from unrolled.data.readers.labelled import read_labelled
from unrolled.data.readers.media.transcripts import read_transcripts
from unrolled.data.readers.tables.read_table import read_text_column
from unrolled.errors import Note

ROWS = [("a", "one, two"), ("b", 'with "quotes"'), ("c", "naïve")]


def texts(path: Path) -> list[str]:
    return [row.values[0] for row in read_text_column(path, None, "text", 2)]


def write(folder: Path, kind: str) -> Path:
    path = folder / f"table{kind}"
    if kind in (".tsv", ".tsv.gz"):
        text = "".join(f"{label}\t{text}\n" for label, text in ROWS)
    elif kind == ".csv":
        text = "id,text,label\n" + "".join(
            f'{i},"{t.replace(chr(34), chr(34) * 2)}",{x}\n' for i, (x, t) in enumerate(ROWS)
        )
    elif kind == ".jsonl":
        text = "\n".join(json.dumps({"text": t, "label": x, "more": [1]}) for x, t in ROWS)
    else:
        import pyarrow
        import pyarrow.parquet

        table = pyarrow.table({"label": [x for x, _ in ROWS], "text": [t for _, t in ROWS]})
        pyarrow.parquet.write_table(table, path)
        return path
    path.write_bytes(gzip.compress(text.encode()) if kind.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize("kind", [".tsv", ".tsv.gz", ".csv", ".jsonl", ".parquet"])
def test_every_kind(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path, kind)
    rows = read_table(path, [None, None], ["label", "text"])
    assert [row.values for row in rows] == ROWS
    assert rows[0].place.startswith(f"{path}:")


def test_columns_by_name_and_number(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text("x\ty\tz\n1\t2\t3\n")
    assert [r.values for r in read_table(path, ["3", "1"], ["label", "text"])] == [("z", "x"), ("3", "1")]
    assert [r.values for r in read_table(path, ["z", "x"], ["label", "text"])] == [("3", "1")]
    assert read_table(path, ["z", "x"], ["label", "text"])[0].place == f"{path}:2"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.tsv", "a\tb\nc\n", "t.tsv:2 has no tab: 'c'."),
        ("t.tsv", "a\n", "t.tsv:1 has no tab: 'a'."),
        ("t.csv", "label,text\na,b,c\n", "t.csv:2 has 3 comma-separated columns: 'a,b,c'. Expected 2 columns"),
        ("t.csv", "label,txt\na,b\n", "t.csv:1 has no column 'text'. Its first row: label, txt."),
        ("t.csv", "label,text\n", "t.csv holds no example."),
        ("t.jsonl", '{"label": 1}\n', "t.jsonl:1 has no 'text'. It has: label."),
        ("t.jsonl", '{"label": 1, "text": "x"}\n{oops\n', "t.jsonl:2 is not JSON:"),
        ("t.jsonl", "[1]\n", "t.jsonl:1 is list. Expected one object on each line."),
        ("t.parquet", "nonsense", "t.parquet is not a Parquet file:"),
        ("t.doc", "x", "Unknown kind of file 't.doc'. Choices: .csv, .json, .jsonl, .parquet, .tsv, .txt."),
        ("t.tsv.gz", "not gzip", "t.tsv.gz is not a whole gzip file:"),
        ("t.csv", 'label,text\na,"open\nb,c\n', "t.csv:2: a quote is not closed. Close it, or double a literal"),
        ("t.csv", 'label,text\na,"x" y\n', "t.csv:2: ',' expected after '\"'. Correct the line."),
        ("t.csv", "label,text,text\na,b,c\n", "t.csv:1 has 2 columns 'text'. Give each a different name."),
        (
            "t.csv",
            "good,it was fine\nbad,it was not\n",
            "t.csv:1 has no column 'label' and no column 'text'. Its first row: good, it was fine. Say which they are, "
            "by name, or by number where there is no header, for example: "
            "--set data.label_column=1 --set data.text_column=2",
        ),
        ("t.csv", "label;txt\na;b\n", "t.csv:1 has no column 'text'. Its first row: label, txt."),
    ],
)
def test_bad_tables(name: str, content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError) as error:
        read_table(tmp_path / name, [None, None], ["label", "text"])
    assert message in str(error.value)


def test_columns_are_counted_from_one(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("a\tb\n")
    with pytest.raises(UserError, match=r"A column is counted from 1, got 0\."):
        read_table(tmp_path / "t.tsv", ["0", None], ["label", "text"])


def test_a_missing_column_is_told_with_its_key(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("where,text\na.wav,b\n")
    with pytest.raises(UserError, match=r"no column 'file'\. .* or its number: --set data\.input_column=…$"):
        read_transcripts(tmp_path / "t.csv")
    with pytest.raises(UserError, match=r"no column 'label'\. .* or its number: --set data\.label_column=…$"):
        read_labelled(tmp_path / "t.csv")
    with pytest.raises(UserError, match=r"no column 'said'\. .* or its number: --set data\.text_column=…$"):
        list(read_text_column(tmp_path / "t.csv", "said", "text", 2))


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("t.tsv", "label\ttext\na\tb\n", [None, None]),
        ("t.csv", "id,Label,text\n1,a,b\n", ["2", "3"]),
    ],
)
def test_names_are_no_example(name: str, content: str, columns: list[str | None], tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.warns(Note, match=rf"{name}:1 is a header; columns: label '[Ll]abel', text 'text'\."):
        rows = read_table(tmp_path / name, columns, ["label", "text"])
    assert [row.values for row in rows] == [("a", "b")]


def test_semicolons_blanks_and_long_cells(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f'label; text\na;"one; two, three"\nb;{"x" * 200_000}\n')
    rows = [row.values for row in read_table(tmp_path / "t.csv", [None, None], ["label", "text"])]
    assert rows == [("a", "one; two, three"), ("b", "x" * 200_000)]


@pytest.mark.parametrize("kind", [".tsv", ".tsv.gz", ".csv", ".jsonl", ".parquet"])
def test_texts_alone(kind: str, tmp_path: Path) -> None:
    """A table to answer needs only the text column."""
    assert texts(write(tmp_path, kind)) == [text for _, text in ROWS]


def test_lines_are_no_table(tmp_path: Path) -> None:
    for name in ("a.txt", "a.tsv", "a"):
        (tmp_path / name).write_text("one, two\n\nthree\x0cfour\u2028five\n")
        assert texts(tmp_path / name) == ["one, two", "", "three\x0cfour\u2028five"]
    (tmp_path / "a.txt").write_text("a\tone\n\nb\ttwo\n")
    assert texts(tmp_path / "a.txt") == ["one", "two"]
    (tmp_path / "a.txt").write_text("a\tone\ntwo\n")
    assert texts(tmp_path / "a.txt") == ["a\tone", "two"]
    (tmp_path / "a.jsonl").write_text('{"text": 3}\n')
    with pytest.raises(UserError, match=r"a\.jsonl:1: the text is int\. Expected a text\."):
        list(read_text_column(tmp_path / "a.jsonl", None, "text", 2))


def test_a_missing_table(tmp_path: Path) -> None:
    for name in ("t.tsv", "t.parquet"):
        with pytest.raises(UserError, match="does not exist"):
            read_table(tmp_path / name, [None, None], ["label", "text"])


def test_ragged_arrays(tmp_path: Path) -> None:
    path = tmp_path / "r.npz"
    np.savez(path, x=np.arange(12).reshape(6, 2), y=["a", "b"], lengths=[2, 4])
    read = read_ragged(path, ["x", "y"])
    assert [array.tolist() for array in read["x"]] == [[[0, 1], [2, 3]], [[4, 5], [6, 7], [8, 9], [10, 11]]]
    assert [str(label) for label in read["y"]] == ["a", "b"]
    np.savez(path, x=np.zeros((3, 5, 2)), y=[0, 1, 2])
    assert [array.shape for array in read_ragged(path, ["x", "y"])["x"]] == [(5, 2)] * 3


def test_bad_arrays(tmp_path: Path) -> None:
    path = tmp_path / "r.npz"
    np.savez(path, x=np.zeros((5, 2)), lengths=[2, 2])
    with pytest.raises(UserError, match=r"x has 5 rows\. Expected 4, the sum of lengths, or 2"):
        read_ragged(path, ["x"])
    with pytest.raises(UserError, match=r"has no array 'z'\. It has: x, lengths"):
        read_ragged(path, ["z"])
    np.savez(path, x=np.zeros((5, 2)), y=np.zeros(4))
    with pytest.raises(UserError, match="Add an array `lengths`"):
        read_ragged(path, ["x", "y"])
    np.savez(path, x=np.array([[1], [2, 3]], dtype=object))
    with pytest.raises(UserError, match="Python objects, which are not read"):
        read_ragged(path, ["x"])
    path.write_bytes(b"nonsense")
    with pytest.raises(UserError, match="is not an npz file"):
        read_ragged(path, ["x"])


def buckets(lengths: list[int], size: int, seed: int | None) -> Buckets:
    import torch

    def collate(part: list[int]) -> Batch:
        return Batch(torch.tensor(part)[:, None], torch.zeros(len(part)))

    return Buckets(list(range(len(lengths))), lengths, collate, batch_size=size, seed=seed)


def test_every_example_once_in_every_epoch() -> None:
    lengths = np.random.default_rng(0).integers(1, 40, size=1000).tolist()
    made = buckets(lengths, 16, seed=3)
    orders = []
    for epoch in range(3):
        made.order(epoch)
        rows = [made[i].inputs.flatten().tolist() for i in range(len(made))]
        assert sorted(i for row in rows for i in row) == list(range(1000))
        assert len(made) == 63
        orders.append(rows)
    assert orders[0] != orders[1]
    made.order(0)
    assert [made[i].inputs.flatten().tolist() for i in range(len(made))] == orders[0]
    spread = [max(lengths[i] for i in row) - min(lengths[i] for i in row) for row in orders[1]]
    assert np.mean(spread) < 8  # of up to 39: like stands beside like


def test_long_sequences_come_in_small_batches() -> None:
    lengths = [10] * 100 + [30_000] * 7 + [200_000]
    made = buckets(lengths, 32, seed=0)
    count = len(made)
    for epoch in range(4):
        made.order(epoch)
        assert len(made) == count
        for index in range(len(made)):
            rows = made.rows(index)
            assert len(rows) == 1 or len(rows) * max(lengths[i] for i in rows) <= 100_000
        assert sorted(np.concatenate([made.rows(i) for i in range(count)]).tolist()) == list(range(108))


def test_equal_examples_are_held_out_together() -> None:
    keys = [i % 50 for i in range(500)]
    train, valid = held_out(keys, 0.1)
    assert {keys[i] for i in train} & {keys[i] for i in valid} == set()
    assert sorted(train + valid) == list(range(500))
    assert len(valid) == 50
    assert held_out(keys, 0.1) == (train, valid)
    assert len(held_out(["a", "b"], 0.01)[1]) == 1
    with pytest.raises(UserError, match=r"^All 3 examples have the same input: none can be held out"):
        held_out(["a", "a", "a"], 0.1)


@pytest.mark.parametrize("read", [read_labelled, read_transcripts])
def test_an_unknown_ending_is_told_what_else_would_do(read: Callable[[Path], object], tmp_path: Path) -> None:
    (tmp_path / "t.doc").write_text("x")
    with pytest.raises(UserError, match=r"Unknown kind of file 't\.doc'\. Choices: \.csv, \.json, \.jsonl, \.npz, "):
        read(tmp_path / "t.doc")
