"""`classify` as a user types it."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm
from tests.tasks.test_classify import SMALL, sentences, write


def run(*words: str, text: str = "", folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return warm.unrolled(*words, given=text, folder=folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trained model in it."""
    place = tmp_path_factory.mktemp("work")
    write(place / "train.tsv", sentences(100))
    write(place / "test.tsv", sentences(40, seed=1))
    settings = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]
    result = run("train", "classify", "--train", "train.tsv", "--out", "m", *settings, folder=place)
    assert result.returncode == 0, result.stderr
    assert "Done: best accuracy" in result.stderr
    return place


def test_run_reads_lines_and_keeps_their_order(folder: Path) -> None:
    result = run("run", "m", text="one fine\ntwo poor\nfine\n", folder=folder)
    assert result.stdout == "good\nbad\ngood\n"


def test_run_reads_files_and_texts(folder: Path) -> None:
    (folder / "lines.txt").write_text("poor one\nfine one\n")
    assert run("run", "m", "lines.txt", folder=folder).stdout == "bad\ngood\n"
    assert run("run", "m", "--text", "poor thing", folder=folder).stdout == "bad\n"


def test_run_reads_tables_like_those_of_training(folder: Path) -> None:
    lines = run("run", "m", "test.tsv", "--json", folder=folder).stdout.splitlines()
    rows = sentences(40, seed=1)
    assert [json.loads(line)["input"] for line in lines] == [text for _, text in rows]
    (folder / "asked.csv").write_text('text\n"poor, \none"\nfine\n')
    assert run("run", "m", "asked.csv", folder=folder).stdout == "bad\ngood\n"


def test_standard_input_is_text(folder: Path) -> None:
    def asked(data: bytes) -> subprocess.CompletedProcess[str]:
        return warm.unrolled("run", "m", "--json", given=data, folder=folder)

    (line,) = asked(b"\xef\xbb\xbffine\r\n").stdout.splitlines()
    assert json.loads(line)["input"] == "fine"
    result = asked(b"fine\ncaf\xe9\n")
    assert result.returncode == 2
    assert result.stderr.startswith("unrolled: Standard input, line 2 is not UTF-8: byte 0xe9. Convert it, for exam")


def test_a_full_disk_is_said(folder: Path) -> None:
    with Path("/dev/full").open("w") as full:
        words = [sys.executable, "-m", "unrolled", "run", "m", "--text", "fine"]
        result = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, cwd=folder)
    assert result.returncode != 0
    assert "No space left on device" in result.stderr
    assert "Traceback" not in result.stderr


def test_run_gives_probabilities(folder: Path) -> None:
    lines = run("run", "m", "--json", text="one fine\ntwo poor\n", folder=folder).stdout.splitlines()
    records = [json.loads(line) for line in lines]
    assert [record["label"] for record in records] == ["good", "bad"]
    assert records[0]["input"] == "one fine"
    assert sum(records[0]["probabilities"].values()) == pytest.approx(1)
    rows = list(csv.DictReader(io.StringIO(run("run", "m", "--format", "csv", text="a, fine\n", folder=folder).stdout)))
    assert rows[0]["input"] == "a, fine"
    assert json.loads(rows[0]["probabilities"]).keys() == {"good", "bad"}


def test_run_abstains_below_a_probability(folder: Path) -> None:
    assert run("run", "m", "--text", "one fine", "--min-probability", "0.5", folder=folder).stdout == "good\n"
    assert run("run", "m", "--text", "one fine", "--min-probability", "1", folder=folder).stdout == "?\n"
    record = json.loads(run("run", "m", "--text", "x", "--min-probability", "1", "--json", folder=folder).stdout)
    assert record["label"] is None
    assert record["probabilities"].keys() == {"good", "bad"}
    scores = json.loads(run("eval", "m", "test.tsv", "--min-probability", "1", "--json", folder=folder).stdout)
    assert scores["coverage"] < 1
    wrong = run("run", "m", "--text", "x", "--min-probability", "80", folder=folder)
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "unrolled: min_probability=80.0 is not a probability. Give a number from 0 to 1, such as 0.8.\n",
    )


def test_run_explains(folder: Path) -> None:
    shown = run("run", "m", "--text", "one fine", "--explain", folder=folder).stdout
    assert shown.startswith("good\n  for good: fine +")
    record = json.loads(run("run", "m", "--text", "one fine", "--explain", "--json", folder=folder).stdout)
    why = record["explanation"]
    assert why["of"] == "good"
    assert [(word["text"], word["start"], word["end"]) for word in why["words"]] == [("one", 0, 3), ("fine", 4, 8)]
    assert why["words"][1]["score"] > why["words"][0]["score"]


def test_eval_prints_tables_and_json(folder: Path) -> None:
    shown = run("eval", "m", "test.tsv", folder=folder).stdout
    assert "accuracy" in shown
    assert "precision  recall" in shown
    assert "answered" in shown
    scores = json.loads(run("eval", "m", "test.tsv", "--json", folder=folder).stdout)
    assert scores["accuracy"] > 0.9
    assert set(scores) >= {"accuracy", "macro_f1", "nll", "classes", "confusion", "unknown_labels"}


def test_check_and_info_and_words(folder: Path) -> None:
    shown = run("check", "classify", "--train", "train.tsv", folder=folder).stdout
    assert "labels" in shown
    assert "valid inputs also in train" in shown
    assert "classify" in run("info", "m", folder=folder).stdout
    assert "poor" in run("words", "m", "fine", folder=folder).stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train", "classify", "--train", "missing.tsv"), "missing.tsv does not exist."),
        (("run", "m", "--text", "x", "--temperature", "1"), "--temperature is not for a model of classify."),
        (("run", "m", "--text", "x", "--format", "xml"), "Unknown format 'xml'."),
        (("run", "m", "--text", "x", "--json", "--format", "csv"), "--json and --format csv are two formats."),
        (("eval", "m", "missing.tsv"), "missing.tsv does not exist."),
    ],
)
def test_mistakes_end_with_one_line(words: tuple[str, ...], message: str, folder: Path) -> None:
    result = run(*words, folder=folder)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_a_new_label_is_a_note(folder: Path) -> None:
    write(folder / "new.tsv", [("strange", "fine"), ("good", "fine")])
    result = run("eval", "m", "new.tsv", folder=folder)
    assert result.returncode == 0
    assert "Note: Labels never seen in training count as wrong. There are 1, the first at new.tsv:1" in result.stderr
