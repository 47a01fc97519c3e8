"""`translate` from the command line, as a user types it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_generate import call
from tests.tasks.translate.conftest import SMALL, numbers, table
from unrolled.model_file import read_about

SET = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "numbers.tsv"
    path.write_text(table(numbers()))
    return path


@pytest.fixture(scope="module")
def folder(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "numbers"
    code, _, said = call("train", "translate", "--train", file, "--valid", file, "--out", path, *SET)
    assert code == 0
    assert f"translate on {file}" in said
    assert "exposure_gap" in said
    assert "became" in said
    return path


def test_a_config_with_every_key_explained(file: Path, tmp_path: Path) -> None:
    assert call("new", "translate", tmp_path / "my.toml", "--set", f"data.train={file}")[0] == 0
    text = (tmp_path / "my.toml").read_text()
    assert 'task = "translate"' in text
    for section in ("[data.source]", "[data.target]", "[model.encoder]", "[model.decoder]"):
        assert section in text
    for key in ("joint", "normalize", "reverse", "attention", "bridge", "positions", "batch_tokens", "valid_free"):
        line = next(n for n, line in enumerate(text.split("\n")) if line.lstrip("# ").startswith(f"{key} ="))
        assert text.split("\n")[line - 1].startswith("# "), key
    code, out, _ = call("check", tmp_path / "my.toml", *SET)
    assert code == 0
    assert re.search(r"source tokens +symbols, 7 known\n", out)


def test_lines_in_lines_out(folder: Path) -> None:
    code, out, _ = call("run", folder, "--beam", "3", given="3 5 8\n\n7\r\n5 3")
    assert code == 0
    assert out == "eight five three\n\nseven\nthree five\n"


def test_a_file_keeps_its_lines(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("3 5\n\n8\n")
    assert call("run", folder, tmp_path / "in.txt")[1] == "five three\n\neight\n"


def test_of_a_table_the_sources_are_read(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.tsv").write_text("3 5\tno\n8\tno\n")
    (tmp_path / "in.csv").write_text("target;source\nno;3 5\nno;8\n")
    for name in ("in.tsv", "in.csv"):
        assert call("run", folder, tmp_path / name)[1] == "five three\neight\n"
    (tmp_path / "out.txt").write_text("five three\neight\n")
    code, _, said = call("eval", folder, tmp_path / "in.tsv", "--target", tmp_path / "out.txt")
    assert code == 2
    assert said.startswith(f"unrolled: {tmp_path / 'in.tsv'} is a table; expected lines of text.")


def test_n_best_with_scores_attention_and_alignment(folder: Path) -> None:
    code, out, _ = call("run", folder, "--text", "3 5 8", "--n-best", "3", "--json")
    assert code == 0
    record = json.loads(out)
    assert record["translation"] == "eight five three"
    assert [row["score"] for row in record["n_best"]] == sorted((r["score"] for r in record["n_best"]), reverse=True)
    assert len(record["n_best"]) == 3
    for one in (record, *record["n_best"]):
        assert len(one["attention"]) == len(one["alignment"]) == len(one["target_tokens"])
        assert {len(looked) for looked in one["attention"]} == {len(record["source_tokens"])}
    assert record["ended"]
    lines = call("run", folder, "--text", "3 5 8", "--n-best", "2")[1].splitlines()
    assert [line.split("\t")[0] for line in lines] == ["1", "2"]


def test_draws_keep_to_what_was_asked(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("three\nfive\n")
    drawing = ("--temperature", "1", "--seed", "0", "--n-best", "3", "--min-tokens", "4", "--text", "8 8")
    code, out, _ = call("run", folder, *drawing, "--words", tmp_path / "words.txt", "--prefix", "five")
    assert code == 0
    ranks, _, texts = zip(*(line.split("\t") for line in out.splitlines()), strict=True)
    assert ranks == ("1", "2", "3")
    for text in texts:
        assert text.startswith("five ")
        assert len(text.split()) >= 4
        assert set(text.split()) <= {"three", "five"}
    assert call("run", folder, *drawing, "--picture", tmp_path / "a.png")[0] == 0  # where the first of them looked


def two_targets(folder: Path) -> list[Any]:
    return ["--target", folder / "a.tgt", "--target", folder / "b.tgt"]


def test_scores(folder: Path, file: Path, tmp_path: Path) -> None:
    code, out, _ = call("eval", folder, file, "--json")
    scores = json.loads(out)
    assert code == 0
    assert scores["exact_match"] > 0.95
    assert {"bleu", "bleu_signature", "chrf", "ter", "exact_match", "by_length", "not_ended"} <= set(scores)
    said = call("eval", folder, file)[1]
    assert "source length    BLEU  exact match  sentences" in said
    (tmp_path / "a.src").write_text("".join(f"{s}\n" for s, _ in numbers()))
    (tmp_path / "a.tgt").write_text("".join(f"{t}\n" for _, t in numbers()))
    assert call("eval", folder, tmp_path / "a.src", "--target", tmp_path / "a.tgt")[1] == said
    (tmp_path / "b.tgt").write_text("nothing\n" * len(numbers()))
    both = json.loads(call("eval", folder, tmp_path / "a.src", *two_targets(tmp_path), "--json")[1])
    assert (both["references"], both["exact_match"]) == (2 * len(numbers()), scores["exact_match"])
    assert both["bleu_signature"].startswith("nrefs:2|")
    assert read_about(folder / "best.safetensors").scores["exact_match"] == pytest.approx(scores["exact_match"])


def test_pictures(folder: Path, file: Path, tmp_path: Path) -> None:
    assert call("run", folder, "--text", "3 5 8", "--picture", tmp_path / "a.png")[0] == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    best = folder / "last.safetensors"
    assert call("eval", folder, file, "--with", best, "--picture", tmp_path / "l.svg", "--json")[0] == 0
    assert "last.safetensors" in (tmp_path / "l.svg").read_text() or (tmp_path / "l.svg").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--picture", "a.gif"),
            "unrolled: a.gif is not an image file: its name ends in '.gif'. Use .png, .svg, .pdf.",
        ),
        (("--picture", "none/a.png"), "unrolled: There is no folder none. Create it first, or choose another folder."),
        (("--length-penalty", "mean"), "unrolled: Unknown length penalty 'mean'. Choices: average, gnmt, none."),
        (
            ("--repetition-penalty", "2"),
            "unrolled: --repetition-penalty is not for a model of translate. It takes --max-",
        ),
        (("--seed", "1"), "unrolled: seed is for drawing, and without a temperature outputs are searched for. Give a"),
        (("--temperature", "1", "--beam", "5"), "unrolled: beam is for a search, and with a temperature outputs are "),
        (("--prefix", "nine"), "unrolled: The prefix has 'nine', which the model does not know. Use what was in its "),
        (("--n-best", "9"), "unrolled: n_best=9 is more than the beam's size=5. Use a beam of 9."),
    ],
)
def test_options_that_cannot_be(folder: Path, words: tuple[str, ...], message: str) -> None:
    code, _, said = call("run", folder, "--text", "3", *words)
    assert code == 2
    assert said.startswith(message)


def test_a_search_and_a_comparison(folder: Path, file: Path, tmp_path: Path) -> None:
    code, out, said = call("eval", folder, file, "--beam", "3", "--picture", tmp_path / "beam.png", "--json")
    assert code == 0, said
    assert json.loads(out)["search"] == "beam 3, gnmt 1"
    assert (tmp_path / "beam.png").exists()
    code, _, said = call("eval", folder, file, "--with", folder / "last.safetensors")
    assert code == 2
    assert said.startswith(
        "unrolled: --with adds a model to a picture. Say where the picture goes: --picture lengths.png"
    )
    assert not (tmp_path / "l.png").exists()
    (tmp_path / "labels.tsv").write_text("".join(f"{'xy'[i % 2]}\ttext {i}\n" for i in range(12)))
    small = ("--set", "train.max_steps=1", "--quiet")
    assert call("train", "classify", "--train", tmp_path / "labels.tsv", "--out", tmp_path / "c", *small)[0] == 0
    code, _, said = call("eval", folder, file, "--with", tmp_path / "c", "--picture", tmp_path / "l.png")
    assert code == 2
    assert said.startswith("unrolled: The models are of classify and translate. Give those of one task.")


def test_a_picture_shows_one_input(folder: Path, tmp_path: Path) -> None:
    code, _, said = call("run", folder, "--picture", tmp_path / "a.png", given="3\n5\n")
    assert code == 2
    assert said.startswith("unrolled: A picture shows one input, and there are 2. Give one.")


def test_broken_files_are_said_with_their_line(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("3\tthree\n5 five\n")
    for words in (("eval", folder, path), ("train", "translate", "--train", path, "--out", tmp_path / "run")):
        code, _, said = call(*words)
        assert code == 2
        assert said.startswith(f"unrolled: {path}:2 has no tab: '5 five'.")
    (tmp_path / "a.src").write_text("3\n5\n")
    (tmp_path / "a.tgt").write_text("three\n")
    files = ("--train-source", tmp_path / "a.src", "--train-target", tmp_path / "a.tgt")
    code, _, said = call("train", "translate", *files, "--out", tmp_path / "run")
    assert code == 2
    assert said.startswith(f"unrolled: {tmp_path}/a.src has 2 lines, {tmp_path}/a.tgt has 1.")
    assert not (tmp_path / "run").exists()
