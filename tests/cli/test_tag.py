"""`tag` from the command line, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests import warm
from tests.cli.test_generate import call
from tests.tasks.tag.conftest import SMALL, columns_text
from tests.tasks.tag.test_tag_frames import gestures
from unrolled.model_file import read_about

SET = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture(scope="module")
def chunks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "chunks.txt"
    path.write_text(columns_text())
    return path


@pytest.fixture(scope="module")
def folder(chunks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "chunks"
    code, _, said = call("train", "tag", "--train", chunks, "--valid", chunks, "--out", path, *SET)
    assert code == 0
    assert f"tag on {chunks}" in said
    assert "span_f1" in said
    return path


def test_a_config_with_every_key_explained(chunks: Path, tmp_path: Path) -> None:
    assert call("new", "tag", tmp_path / "my.toml", "--set", f"data.train={chunks}")[0] == 0
    text = (tmp_path / "my.toml").read_text()
    assert 'task = "tag"' in text
    for key in ("column", "tag_column", "feature_columns", "vectors", "letter_hidden", "output", "legal", "lr"):
        line = next(n for n, line in enumerate(text.split("\n")) if line.lstrip("# ").startswith(f"{key} ="))
        assert text.split("\n")[line - 1].startswith("# "), key
    code, out, _ = call("check", tmp_path / "my.toml", *SET)
    assert code == 0
    assert "spans                            IOB2" in out


def test_lines_in_tags_out(folder: Path) -> None:
    given = "Ada saw Paul in Rome.\n\nKurt met Ada.\n"
    code, out, _ = call("run", folder, given=given)
    assert code == 0
    assert out == "Ada/B-PER saw/O Paul/B-PER in/O Rome/B-LOC ./O\n\nKurt/B-PER met/O Ada/B-PER ./O\n"
    records = [json.loads(line) for line in call("run", folder, "--json", given=given)[1].splitlines()]
    assert records[2]["tags"] == ["B-PER", "O", "B-PER", "O"]
    table = call("run", folder, "--text", "Kurt", "--format", "csv")[1]
    assert table.startswith("sentence,token,tag,probability\n1,Kurt,B-PER,0.9")


def test_a_file_comes_back(folder: Path, chunks: Path) -> None:
    assert call("run", folder, chunks)[1] == columns_text()
    assert call("run", folder, given=columns_text())[1] == columns_text()


def test_scores(folder: Path, chunks: Path) -> None:
    code, out, _ = call("eval", folder, chunks, "--json")
    scores = json.loads(out)
    assert code == 0
    assert scores["span_f1"] > 0.95
    assert {"accuracy", "macro_f1", "span_precision", "span_recall", "unknown_labels", "tags", "spans"} <= set(scores)
    table = call("eval", folder, chunks)[1]
    assert "spans  precision  recall      f1   count" in table
    assert read_about(folder / "best.safetensors").scores["span_f1"] == pytest.approx(scores["span_f1"])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "a B-X\nb\n", "unrolled: {path}:2 has 1 blank-separated columns, expected 2 as in the lines before"),
        ("a.conllu", "1\ta\n", "unrolled: {path}:1 has 2 tab-separated columns, expected 10"),
        ("a.jsonl", '{"tokens": ["a"], "tags": []}', "unrolled: {path}:1 has 1 tokens and 0 tags. Expected one for"),
    ],
)
def test_broken_files_are_said_with_their_line(
    folder: Path, tmp_path: Path, name: str, text: str, message: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    for words in (("eval", folder, path), ("train", "tag", "--train", path, "--out", tmp_path / "run")):
        code, _, said = call(*words)
        assert code == 2
        assert said.startswith(message.format(path=path))
    assert not (tmp_path / "run").exists()


def test_an_option_of_another_task(folder: Path) -> None:
    code, _, said = call("run", folder, "--text", "a", "--temperature", "1")
    assert code == 2
    assert said.startswith("unrolled: --temperature is not for a model of tag. It takes --segments")


def test_a_sentence_is_no_line_of_columns(chunks: Path, tmp_path: Path) -> None:
    changes = (*SET, "--set", "train.max_steps=1", "--set", "data.feature_columns=2")
    assert call("train", "tag", "--train", chunks, "--out", tmp_path / "run", *changes)[0] == 0
    code, out, said = call("run", tmp_path / "run", given="He ran home\n")
    assert (code, out) == (2, "")
    assert said.startswith("unrolled: standard input looks like text, and this model reads more than words: the column")
    code, out, _ = call("run", tmp_path / "run", given="Ada NNP\nsaw VB\n")
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()] == [["Ada", "NNP"], ["saw", "VB"]]


def test_a_key_for_another_kind_of_file(chunks: Path, tmp_path: Path) -> None:
    words = ("train", "tag", "--train", chunks, "--out", tmp_path / "run", "--set", "data.column=xpos")
    code, _, said = call(*words)
    assert code == 2
    assert said.startswith(f"unrolled: {chunks} is not CoNLL-U: data.column='xpos' does not apply.")


def test_ends_of_lines_come_back(folder: Path, tmp_path: Path) -> None:
    """In a process of its own: bytes in, bytes out."""
    path = tmp_path / "windows.txt"
    path.write_bytes(b"\xef\xbb\xbf" + columns_text().replace("\n", "\r\n").encode())
    found = warm.unrolled("run", folder, path, check=True)
    assert found.stdout.encode() == path.read_bytes()


def test_frames_from_training_to_inspection(tmp_path: Path) -> None:
    np.savez(tmp_path / "frames.npz", **gestures())
    few = ("--set", "train.max_steps=2", "--set", "model.hidden_size=4", "--set", "train.batch_size=8")
    assert call("train", "tag", "--train", tmp_path / "frames.npz", "--out", tmp_path / "run", *few)[0] == 0
    code, out, _ = call("run", tmp_path / "run", tmp_path / "frames.npz", "--format", "csv", "--segments")
    assert code == 0
    assert out.startswith("sequence,start,end,tag\n1,0,")
    assert "overlap_f1" in call("eval", tmp_path / "run", tmp_path / "frames.npz")[1]
    assert "frames of shape (3,)" in call("check", "tag", "--train", tmp_path / "frames.npz", *few)[1]
    drawn = call("inspect", tmp_path / "run", "--example", "0", "--figures", tmp_path / "figures", "--only", "losses")
    assert drawn[1].strip() == str(tmp_path / "figures" / "losses.png")
