"""`unrolled reproduce`: every recipe can be read; one is run, and its score stands beside the published one."""

from __future__ import annotations

import hashlib
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from unrolled import UserError, api, recipes
from unrolled.cli.app import main
from unrolled.config import read_toml
from unrolled.recipe_data import FOLDER
from unrolled.recipes import Recipe, find_recipe, prepare_files, read_recipe, recipe_names

RECIPES = sorted(FOLDER.glob("*.toml"))
SMALL = """
task = "generate"

[recipe]
about = "sums"
train = "sums/all.txt"
tail = 0.2
metric = "nats_per_token"
published = 1.5
source = "Nobody et al. 1999"
protocol = "every character once"

[model]
hidden_size = 16

[train]
batch_size = 4
k1 = 20
max_steps = 3
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "sums").mkdir(parents=True)
    (tmp_path / "data" / "sums" / "all.txt").write_text("".join(f"{a} + {a} = {2 * a} \n" for a in range(200)))
    (tmp_path / "small.toml").write_text(SMALL)
    return tmp_path / "small.toml"


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["unrolled", "reproduce", *arguments])
    main()


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_is_whole(path: Path) -> None:
    """Its config trains, its text says what was published and how it is scored."""
    recipe = read_recipe(read_toml(path))
    config: Any = api.configure(path)
    assert recipe.about
    assert recipe.source
    assert recipe.published
    assert "scored once" in recipe.protocol
    assert recipe.minutes
    assert config.train.eval_every
    assert config.train.patience is not None  # results do not hang on the default
    assert f"unrolled reproduce {path.stem} --data" in path.read_text()


def test_there_are_recipes_for_what_is_published() -> None:
    wanted = {"ptb-zaremba-medium", "ptb-zaremba-large", "ptb-awd", "ptb-characters", "latex", "baselines"}
    assert wanted | {"shakespeare-recurrent", "shakespeare-transformer"} <= set(recipe_names())
    assert "common" not in recipe_names()


def test_a_score_stands_beside_the_published_one(
    recipe: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        command(monkeypatch, str(recipe), "--data", "data", "--device", "cpu", "--seed", "3", "--quiet")
    assert end.value.code == 0
    said = capsys.readouterr().out
    assert "small: sums" in said
    hashed = subprocess.run(
        "sha256sum sums/all.txt | sha256sum", shell=True, cwd="data", capture_output=True, text=True
    )
    assert f"data       {hashed.stdout.split()[0]}\n" in said
    assert "No hash of the data is stored with the score of small." in said
    assert "published  1.5000  Nobody et al. 1999" in said
    assert "seed 3" in said
    scores = api.load("runs/small-1").evaluate("runs/small-1-data/test.txt")
    assert f"here       {scores['nats_per_token']:.4f}" in said
    whole = Path("data/sums/all.txt").read_text()
    assert Path("runs/small-1-data/train.txt").read_text() + Path("runs/small-1-data/test.txt").read_text() == whole
    assert scores["characters"] == round(0.2 * len(whole))


def test_json_and_changed_keys(
    recipe: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--data", "data", "--json", "--quiet", "--out", "run", "--set", "model.hidden_size=8"]
    with pytest.raises(SystemExit):
        command(monkeypatch, str(recipe), *arguments, "--device", "cpu")
    record = json.loads(capsys.readouterr().out)
    assert record["published"] == 1.5
    assert record["run"] == "run"
    assert record["data"]["files"] == {
        "sums/all.txt": hashlib.sha256(Path("data/sums/all.txt").read_bytes()).hexdigest()
    }
    assert record["data"]["same_as_stored"] is None
    assert api.load("run").config.model.hidden_size == 8  # type: ignore[attr-defined]


def test_a_script_is_run(recipe: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    script = recipe.with_name("script.py")
    script.write_text("import sys; print('ran with', *sys.argv[1:]); sys.exit(3)")
    with pytest.raises(SystemExit) as end:
        command(monkeypatch, str(script), "--data", "data", "--device", "cpu")
    assert end.value.code == 3
    assert capfd.readouterr().out == (
        f"{script} does not name its data files: there is no hash.\nran with --data data --device cpu\n"
    )
    script.write_text("DATA = ('sums/*.txt',)\nprint('ran')")
    with pytest.raises(SystemExit):
        command(monkeypatch, str(script), "--data", "data")
    assert re.fullmatch(
        r"data [0-9a-f]{64}\nNo hash of the data is stored with the score of script.\nran\n", capfd.readouterr().out
    )


def test_all_recipes_are_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command(monkeypatch)
    said = capsys.readouterr().out
    assert "ptb-awd" in said
    assert re.search(r"^latex +The Stacks project's LaTeX.* \*$", said, re.MULTILINE)
    assert said.endswith("/recipes/NAME.py --help\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ptb-awdd"], "Unknown recipe 'ptb-awdd'. Did you mean 'ptb-awd'?"),
        (["small.toml"], "Where is the data? Give --data FOLDER, or set UNROLLED_DATA."),
        (["small.toml", "--data", "nowhere"], "nowhere is not a folder. Give the folder of the data sets"),
        (["small.toml", "--data", "."], "sums/all.txt does not exist."),
        (["plain.toml", "--data", "data"], "plain.toml is a config without a recipe: it names no training file."),
        (["wrong.toml", "--data", "data"], "Unknown key 'publisht'. Did you mean 'published'?"),
        (["metric.toml", "--data", "data", "--quiet"], "Unknown metric 'bleu'."),
        (["latex", "--data", ".", "--seed", "1"], "latex is a script with options of its own. See: python"),
    ],
)
def test_mistakes(
    recipe: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.delenv("UNROLLED_DATA", raising=False)
    recipe.with_name("plain.toml").write_text('task = "generate"\n')
    recipe.with_name("wrong.toml").write_text(SMALL.replace("published", "publisht"))
    recipe.with_name("metric.toml").write_text(SMALL.replace("nats_per_token", "bleu"))
    with pytest.raises(SystemExit) as end:
        command(monkeypatch, *arguments)
    assert end.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_without_a_checkout_there_are_no_names(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"There are no recipes in .*\. They come with the repository"):
        find_recipe("ptb-awd", tmp_path)


def test_a_recipe_is_a_config_that_trains(recipe: Path) -> None:
    model = api.train(recipe, train="data/sums/all.txt", out="run", quiet=True)
    assert model.config.model.hidden_size == 16  # type: ignore[attr-defined]


@pytest.mark.skipif("UNROLLED_DATA" not in os.environ, reason="needs the Penn Treebank: UNROLLED_DATA")
def test_characters_of_the_treebank_are_the_usual_ones(tmp_path: Path) -> None:
    """As many as Mikolov et al. 2012 count, of 50 kinds."""
    files = prepare_files(
        read_recipe(read_toml(find_recipe("ptb-characters"))), Path(os.environ["UNROLLED_DATA"]), tmp_path / "work"
    )
    sizes = {name: len(path.read_text()) for name, path in files.items()}
    assert sizes == {"train": 5_017_482, "valid": 393_042, "test": 442_423}
    assert len(set(files["train"].read_text())) == 50


def test_environments_that_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    closing = runpy.run_path(str(FOLDER / "latex.py"))["closing"]
    assert closing(r"\begin{a} \begin{b} \end{b} \end{a}", 100) == (2, 2)
    assert closing(r"\begin{a} \begin{b} \end{a} \end{b}", 100) == (1, 2)
    assert closing(r"\end{a} \begin{a}", 100) == (0, 1)
    assert closing(r"\begin{a} \begin{b} \end{b} \end{a}", 5) == (1, 1)
    assert closing("", 5) == (0, 0)


def test_a_recipe_has_what_its_description_says() -> None:
    assert set(Recipe.model_fields) >= {"train", "valid", "test", "metric", "published", "source", "measured"}
    assert recipes.NOT_RECIPES == ("common", "searches", "small_texts_peers")
