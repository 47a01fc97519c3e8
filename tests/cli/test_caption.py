"""`caption` from the command line, as a user types it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests import warm
from tests.cli.test_generate import call
from tests.fitting import fitting
from tests.tasks.caption.conftest import SMALL, scenes, write
from unrolled import load

SET = [word for key, value in fitting("caption", SMALL).items() for word in ("--set", f"{key}={value}")]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("scenes"))


@pytest.fixture(scope="module")
def folder(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "scenes"
    images = ("--images", table.parent / "images")
    code, _, said = call("train", "caption", "--train", table, "--valid", table, *images, "--out", path, *SET)
    assert code == 0
    assert f"caption on {table}" in said
    assert "cider" in said
    assert "became" in said
    return path


def picture(table: Path, number: int = 0) -> Path:
    return table.parent / "images" / scenes()[number][0]


def test_a_config_with_every_key_explained(table: Path, tmp_path: Path) -> None:
    assert call("new", "caption", tmp_path / "my.toml", "--set", f"data.train={table}")[0] == 0
    text = (tmp_path / "my.toml").read_text()
    assert 'task = "caption"' in text
    for key in ("images", "channels", "grid", "attention", "expected", "doubly_stochastic", "reinforce", "entropy"):
        line = next(n for n, line in enumerate(text.split("\n")) if line.lstrip("# ").startswith(f"{key} ="))
        assert text.split("\n")[line - 1].startswith("# "), key
    code, out, _ = call("check", tmp_path / "my.toml", *SET, "--set", f"data.images={table.parent / 'images'}")
    assert code == 0
    assert "a picture                      16×16 pixels" in out
    assert "captions of a picture          2.0" in out


def test_pictures_in_captions_out(folder: Path, table: Path, tmp_path: Path) -> None:
    for words in ((picture(table),), ("--text", picture(table))):
        code, out, _ = call("run", folder, *words, "--beam", "5")
        assert code == 0
        assert out.strip() in scenes()[0][2]
    code, out, _ = call("run", folder, given=f"{picture(table, 0)}\n{picture(table, 20)}\n")
    assert code == 0
    assert [line in scenes()[n][2] for line, n in zip(out.splitlines(), (0, 20), strict=True)] == [True, True]
    assert len(call("run", folder, table.parent / "images", "--beam", "1")[1].splitlines()) == 36


def test_records_have_a_map_for_each_word(folder: Path, table: Path) -> None:
    code, out, _ = call("run", folder, picture(table), "--json", "--n-best", "2")
    record = json.loads(out)
    assert code == 0
    assert record["image"] == str(picture(table))
    assert len(record["n_best"]) == 2
    for one in (record, *record["n_best"]):
        assert np.array(one["attention"]).shape == (len(one["tokens"]), 4, 4)


def test_attention_is_drawn(folder: Path, table: Path, tmp_path: Path) -> None:
    code, out, _ = call("run", folder, picture(table), "--attention", tmp_path / "a.png")
    assert code == 0
    assert out.strip() in scenes()[0][2]
    assert Image.open(tmp_path / "a.png").size[0] > 500
    code, out, _ = call("run", folder, "--attention", tmp_path / "c.svg", given=f"{picture(table)}\n")
    assert (code, out.strip() in scenes()[0][2], (tmp_path / "c.svg").exists()) == (0, True, True)
    code, _, said = call("run", folder, table.parent / "images", "--attention", tmp_path / "b.png")
    assert code == 2
    assert said.startswith("unrolled: A picture shows one input, and there are 36. Give one.")
    (tmp_path / "cut.png").write_bytes(picture(table).read_bytes()[:40])
    code, out, said = call("run", folder, tmp_path / "cut.png", picture(table), "--attention", tmp_path / "b.png")
    assert (code, out) == (2, "")
    assert said.startswith("unrolled: A picture shows one input, and there are 2. Give one.")
    code, _, said = call("run", folder, tmp_path / "cut.png", "--attention", tmp_path / "b.png")
    assert (code, (tmp_path / "b.png").exists()) == (2, False)
    assert said.startswith(f"unrolled: {tmp_path / 'cut.png'} is damaged or cut off.")


def test_scores(folder: Path, table: Path, tmp_path: Path) -> None:
    code, out, _ = call("eval", folder, table, "--json")
    scores = json.loads(out)
    assert code == 0
    assert scores["exact_match"] > 0.9
    elsewhere = tmp_path / "test.jsonl"
    elsewhere.write_text(table.read_text())
    assert json.loads(call("eval", folder, elsewhere, "--images", table.parent / "images", "--json")[1]) == scores
    assert json.loads(call("eval", folder, table, "--beam", "1", "--json")[1])["exact_match"] > 0.8
    said = call("eval", folder, table)[1]
    for name in ("bleu1", "bleu2", "bleu3", "bleu4", "bleu_signature", "chrf", "cider", "exact_match", "pictures"):
        assert f"\n{name} " in f"\n{said}"


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        ("a.jpg", b"\xff\xd8\xff\xe0", "unrolled: {} is damaged or cut off. Get the file again, or leave it out."),
        ("a.png", b"text", "unrolled: {} is not a readable picture. Expected one of .png, .jpg"),
        ("a.png", b"", "unrolled: {} is empty. Get the file again, or leave it out."),
        ("a.txt", b"text", "unrolled: {} holds no pictures: its name ends in '.txt'. Give a folder, a .zip or a .npz."),
        ("a.zip", b"zip", "unrolled: {} is not a whole zip file: File is not a zip file."),
    ],
)
def test_files_that_are_no_pictures(folder: Path, name: str, raw: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(raw)
    code, _, said = call("run", folder, tmp_path / name)
    assert code == 2
    assert said.startswith(message.format(tmp_path / name))


def test_mistakes_leave_nothing_behind(folder: Path, table: Path, tmp_path: Path) -> None:
    code, _, said = call("train", "caption", "--train", table, "--images", tmp_path, "--out", tmp_path / "run")
    assert code == 2
    assert said.startswith(f"unrolled: {table}:1 names the picture '{scenes()[0][0]}', and {tmp_path} has none of that")
    assert not (tmp_path / "run").exists()
    (tmp_path / "empty").mkdir()
    code, _, said = call("run", folder, tmp_path / "empty")
    assert code == 2
    assert said.startswith(f"unrolled: {tmp_path}/empty holds no picture. Give image files, or a folder, zip or npz")
    code, _, said = call("eval", folder, table, "--target", table)
    assert code == 2
    assert said.startswith(
        "unrolled: --target is not for a model of caption. It takes --images, --max-tokens, --temperature, "
    )


def test_scores_say_their_search(folder: Path, table: Path) -> None:
    """Those of training are of greedy captions, and eval --beam 1 has the same."""
    scores = json.loads(call("eval", folder, table, "--json")[1])
    assert scores["search"] == "beam 5, gnmt 1"
    assert list(scores["searches"]) == ["greedy", "beam 5, gnmt 1"]
    assert scores["searches"]["beam 5, gnmt 1"]["bleu4"] == scores["bleu4"]
    greedy = json.loads(call("eval", folder, table, "--beam", "1", "--json")[1])
    assert (greedy["search"], list(greedy["searches"])) == ("greedy", ["greedy"])
    trained = load(folder).scores
    for name in ("bleu1", "bleu4", "chrf", "cider", "exact_match"):
        assert greedy[name] == pytest.approx(trained[name])
        assert scores["searches"]["greedy"][name] == pytest.approx(trained[name])
    chosen = json.loads(call("eval", folder, table, "--beam", "3", "--length-penalty", "none", "--json")[1])
    assert chosen["search"] == "beam 3"
    said = call("eval", folder, table)[1]
    assert "search           bleu1   bleu4    chrf   cider   words" in said
    assert "\ngreedy  " in said


def test_unreadable_pictures_keep_their_names(folder: Path, table: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"none")
    code, out, _ = call("run", folder, bad, picture(table), "--json")
    broken, good = map(json.loads, out.splitlines())
    assert code == 2
    assert set(broken) == {"input", "error"}
    assert (broken["input"], good["input"], good["image"]) == (str(bad), str(picture(table)), str(picture(table)))
    code, out, _ = call("run", folder, bad, picture(table), "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["input"] for row in rows] == [str(bad), str(picture(table))]
    assert "is not a readable picture" in rows[0]["error"]
    assert (rows[0]["caption"], rows[1]["error"]) == ("", "")
    assert rows[1]["caption"] in scenes()[0][2]


def test_a_picture_on_standard_input(folder: Path, table: Path) -> None:
    result = warm.unrolled("run", folder, "-", given=picture(table).read_bytes(), check=True)
    assert result.stdout.strip() in scenes()[0][2]
