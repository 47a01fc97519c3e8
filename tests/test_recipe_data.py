"""The data of recipes: every recipe names its files, their hashes are stored with its score and compared."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from unrolled import UserError
from unrolled.cli.app import main
from unrolled.recipe_data import (
    RESULTS,
    file_patterns,
    files_of,
    recipe_data,
    sha256_of,
    store_hashes,
    stored_hashes,
)
from unrolled.recipes import find_recipe, recipe_names


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "a").mkdir(parents=True)
    for name in ("a/one.txt", "a/two.txt", "three.bin"):
        (tmp_path / "data" / name).write_bytes(name.encode() * 1000)
    (tmp_path / "results").mkdir()
    path = tmp_path / "toy.py"
    path.write_text('"""A toy."""\n\nDATA = ("three.bin", "a/*.txt")\nraise SystemExit("it must not run")\n')
    return path


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_names_its_files_and_has_their_hashes(name: str) -> None:
    patterns, stored = file_patterns(find_recipe(name)), stored_hashes()
    assert patterns is not None
    for pattern in patterns:
        assert any(Path(file).match(pattern) for file in stored[name])
    for file, digest in stored.get(name, {}).items():
        assert any(Path(file).match(pattern) for pattern in patterns)
        assert len(digest) == 64


def test_hashes_are_those_of_sha256sum(script: Path) -> None:
    found = recipe_data(script, Path("data"), Path("results"))
    assert found is not None
    names = "a/one.txt a/two.txt three.bin"
    sums = subprocess.run(["sha256sum", *names.split()], cwd="data", capture_output=True, text=True, check=True).stdout
    assert "".join(f"{digest}  {name}\n" for name, digest in found.files.items()) == sums
    both = subprocess.run(f"sha256sum {names} | sha256sum", shell=True, cwd="data", capture_output=True, text=True)
    assert found.hash == both.stdout.split()[0]


def test_the_data_of_the_stored_score_is_told_from_other_data(script: Path) -> None:
    def verdict() -> str:
        found = recipe_data(script, Path("data"), Path("results"))
        assert found is not None
        assert found.record()["same_as_stored"] is found.same
        return found.verdict

    assert verdict() == "No hash of the data is stored with the score of toy."
    store_hashes(script, Path("data"), Path("results"))
    assert verdict() == "The stored score was made with the same data."
    Path("data/a/two.txt").write_text("changed")
    Path("data/a/more.txt").write_text("new")
    assert verdict() == "The stored score was made with other data. Different: a/more.txt, a/two.txt."
    Path("data/a/more.txt").unlink()
    Path("data/a/one.txt").unlink()
    assert verdict() == "The stored score was made with other data. Different: a/two.txt, a/one.txt."
    store_hashes(script, Path("data"), Path("results"))  # a part of the recipe ran: what is missing keeps its hash
    assert len(stored_hashes(Path("results"))["toy"]) == 3
    Path("results/data.json").write_text("{")
    with pytest.raises(UserError, match=r"results/data.json is damaged: .*\. Restore it from the repository\."):
        verdict()


def test_missing_data_is_named(script: Path) -> None:
    with pytest.raises(UserError) as error:
        files_of(["three.bin", "b/x.txt", "c*.txt", "d", "e"], Path("data"))
    assert str(error.value) == (
        "data lacks files that this recipe reads: b/x.txt, c*.txt, d and 1 more. "
        "Put them there. recipes/README.md names every data set."
    )
    with pytest.raises(UserError, match=r"nowhere is not a folder\. Give the folder of the data sets: --data FOLDER\."):
        files_of(["x"], Path("nowhere"))
    assert files_of([], Path("nowhere")) == {}


def test_a_recipe_that_makes_its_data_needs_no_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("UNROLLED_DATA", raising=False)
    monkeypatch.setattr(sys, "argv", ["unrolled", "reproduce", "parentheses", "--check-data", "--json"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    assert json.loads(capsys.readouterr().out)["files"] == {}


def test_all_data_is_checked_at_once(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("data/tinyshakespeare").mkdir()
    Path("data/tinyshakespeare/input.txt").write_text("To be\n")
    monkeypatch.setattr(sys, "argv", ["unrolled", "reproduce", "--check-data", "--data", "data"])
    with pytest.raises(SystemExit):
        main()
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert set(lines) == set(recipe_names())
    assert lines["baselines"].endswith(
        "The stored score was made with other data. Different: tinyshakespeare/input.txt."
    )
    assert "data lacks files that this recipe reads: ptb/ptb.train.txt" in lines["ptb-awd"]


def test_large_files_are_read_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(3_000_000)
    assert sha256_of(path) == subprocess.run(["sha256sum", path], capture_output=True, text=True).stdout.split()[0]
    assert RESULTS.name == "results"
