"""Several references for a source: in columns, lists and files, scored as sacrebleu scores them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jiwer
import pyarrow
import pyarrow.parquet
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from tests.tasks.translate.conftest import numbers, small
from unrolled import Model
from unrolled.data import read_pairs, read_parallel
from unrolled.data.readers.pairs import each_target
from unrolled.errors import Note, UserError

SOURCES = [source for source, _ in numbers()[:30]]
FIRST = [target.replace("five", "nine") for _, target in numbers()[:30]]
SECOND = [f"{target} indeed" for _, target in numbers()[:30]]


def table(folder: Path, kind: str) -> Path:
    """The same references in a table of each kind; every third source has one alone."""
    path = folder / f"refs.{kind}"
    second = ["" if i % 3 == 0 else text for i, text in enumerate(SECOND)]
    rows = list(zip(SOURCES, FIRST, second, strict=True))
    if kind == "tsv":
        path.write_text("source\ttarget\ttarget2\n" + "".join("\t".join(row) + "\n" for row in rows))
    elif kind == "csv":
        path.write_text("source,target,target_2\n" + "".join(",".join(row) + "\n" for row in rows))
    elif kind == "jsonl":
        path.write_text(
            "".join(json.dumps({"source": s, "target": [a, *([b] if b else [])]}) + "\n" for s, a, b in rows)
        )
    elif kind == "json":
        found = [{"source": s, "target": a, **({"references": [b]} if b else {})} for s, a, b in rows]
        path.write_text(json.dumps(found))
    else:
        columns = {"source": SOURCES, "target": FIRST, "target2": [text or None for text in second]}
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "json", "parquet"])
def test_every_kind_of_table_is_scored_by_sacrebleu(kind: str, model: Model, tmp_path: Path) -> None:
    scores = model.evaluate(table(tmp_path, kind))
    outputs = [str(answer) for answer in model.predict(SOURCES)]
    columns: list[Any] = [FIRST, [None if i % 3 == 0 else text for i, text in enumerate(SECOND)]]
    bleu = BLEU(tokenize="none")
    assert scores["bleu"] == bleu.corpus_score(outputs, columns).score
    assert scores["bleu_signature"] == str(bleu.get_signature())
    assert scores["chrf"] == CHRF().corpus_score(outputs, columns).score
    assert scores["ter"] == TER(case_sensitive=True).corpus_score(outputs, columns).score
    assert (scores["pairs"], scores["references"]) == (30, 50)


def test_several_files_and_named_columns(model: Model, tmp_path: Path) -> None:
    for name, lines in (("a.src", SOURCES), ("a.one", FIRST), ("a.two", SECOND)):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    outputs = [str(answer) for answer in model.predict(SOURCES)]
    expected = BLEU(tokenize="none").corpus_score(outputs, [FIRST, SECOND]).score
    files = [tmp_path / "a.one", tmp_path / "a.two"]
    assert model.evaluate(tmp_path / "a.src", target=files)["bleu"] == expected
    named = tmp_path / "named.csv"
    rows = zip(SOURCES, FIRST, SECOND, strict=True)
    named.write_text("source,good,better\n" + "".join(",".join(row) + "\n" for row in rows))
    assert model.evaluate(named, set={"data.target_column": "good, better"})["bleu"] == expected
    (tmp_path / "a.two").write_text("one line\n")
    with pytest.raises(UserError, match=r"a\.src has 30 lines, .*a\.two has 1\. Expected the same number in both"):
        model.evaluate(tmp_path / "a.src", target=files)
    with pytest.raises(UserError, match=r"has no column 'worse'"):
        model.evaluate(named, set={"data.target_column": "good,worse"})


def test_a_list_of_tokens_is_one_text(tmp_path: Path) -> None:
    path = tmp_path / "tokens.jsonl"
    path.write_text('{"source": ["a", "b"], "target": ["c", "d"]}\n')
    assert [pair.targets for pair in read_pairs(path)] == [("c d",)]
    path.write_text('{"source": "a b", "target": ["c", "d e"]}\n{"source": "a", "target": ["f"]}\n')
    assert [pair.targets for pair in read_pairs(path)] == [("c", "d e"), ("f",)]
    assert [(pair.source, pair.target) for pair in each_target(read_pairs(path))] == [
        ("a b", "c"),
        ("a b", "d e"),
        ("a", "f"),
    ]
    (tmp_path / "a").write_text("x\n")
    assert read_parallel(*[tmp_path / "a"] * 3)[0].targets == ("x", "x")


def test_training_reads_every_target_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    path.write_text("source\ttarget\ttarget2\n" + "".join(f"{i}\tnumber {i}\tno {i}\n" for i in range(20)))
    with pytest.warns(Note, match=r"20 of 20 sources have several targets: each makes a pair\."):
        small(path, tmp_path / "run", train__max_steps=1)


def test_phones_have_their_own_error_rate(tmp_path: Path) -> None:
    """Against jiwer, and with two pronunciations against the nearer one."""
    path = tmp_path / "g2p.tsv"
    words = ["ab", "ba", "aab", "bba", "abab", "baba"] * 5
    rows = [
        (f"{word}{'a' * (i // 6)}", " ".join({"a": "AH", "b": "B"}[c] for c in word)) for i, word in enumerate(words)
    ]
    path.write_text("".join(f"{source}\t{target}\n" for source, target in rows))
    model = small(path, tmp_path / "run", train__max_steps=2, data__target__level="symbols", data__source__level="char")
    scores = model.evaluate(path)
    outputs = [str(answer) for answer in model.predict([source for source, _ in rows])]
    targets = [target for _, target in rows]
    assert scores["phone_error_rate"] == pytest.approx(jiwer.wer(targets, outputs))
    assert "phone_error_rate" in model.scores
    two = tmp_path / "two.jsonl"
    lines = [
        json.dumps({"source": s, "target": t, "references": [o or "B"]})
        for (s, t), o in zip(rows, outputs, strict=True)
    ]
    two.write_text("\n".join(lines))
    if all(outputs):
        assert model.evaluate(two)["phone_error_rate"] == 0.0
