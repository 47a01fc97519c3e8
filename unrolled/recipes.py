"""Recipes of published results: train one, score it, and show its score beside the published one.

A recipe is `recipes/NAME.toml`, a config with a table `recipe` (see `Recipe`), or a script `recipes/NAME.py`, which
takes `--data` and `--device`, names its data files in the constant DATA and prints a table of its own.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import Field

from unrolled.config import Section, TomlFile, read_config, read_toml
from unrolled.data import read_text
from unrolled.errors import UserError, unknown_name
from unrolled.jobs import TrainingJob, find_target
from unrolled.model import Model
from unrolled.recipe_data import FOLDER, RecipeData, recipe_data
from unrolled.training import new_folder

NOT_RECIPES = ("common", "searches", "small_texts_peers")


class Recipe(Section):
    """The table `recipe` of a config; file names are relative to the data folder."""

    about: str = Field("", description="Description in one line.")
    train: str = Field("", description="Training file.")
    valid: str | None = Field(None, description="Validation file; none: `test`.")
    test: str | None = Field(None, description="Test file; none: the end of `train`, which is cut off.")
    tail: float = Field(0.1, gt=0, lt=1, description="Share of that end.")
    strip_lines: bool = Field(False, description="Strip every line.")
    metric: str = Field("perplexity", description="Name of the score.")
    unit: str = Field("", description="Displayed name of the score; none: the metric's name.")
    published: float | None = Field(None, description="Published score.")
    source: str = Field("", description="Source of the published score.")
    goal: float | None = Field(None, description="Target score; none: the published one.")
    protocol: str = Field("", description="Protocol of scoring and model selection.")
    minutes: str = Field("", description="Time and machine, estimated or measured.")
    measured: str = Field("", description="Score, spread, seeds, machine and date; empty: not yet.")


@dataclass(frozen=True)
class Outcome:
    """A recipe's score beside the published one."""

    name: str
    recipe: Recipe
    scores: Mapping[str, Any]
    minutes: float
    device: str
    seed: int
    changes: tuple[str, ...]  # settings that differ from the recipe
    parameters: int
    folder: Path
    data: RecipeData

    @property
    def score(self) -> float:
        return float(self.scores[self.recipe.metric])

    def record(self) -> dict[str, Any]:
        """The result as a dictionary for JSON."""
        return {
            "name": self.name,
            "metric": self.recipe.metric,
            "score": self.score,
            "published": self.recipe.published,
            "source": self.recipe.source,
            "scores": dict(self.scores),
            "minutes": round(self.minutes, 2),
            "device": self.device,
            "seed": self.seed,
            "changes": list(self.changes),
            "parameters": self.parameters,
            "run": str(self.folder),
            "data": self.data.record(),
        }

    def __str__(self) -> str:
        recipe = self.recipe
        published = "none" if recipe.published is None else f"{recipe.published:.4f}  {recipe.source}"
        lines = [
            f"{self.name}: {recipe.about}",
            f"  {recipe.unit or recipe.metric}",
            f"  here       {self.score:.4f}  seed {self.seed}, {self.parameters:,} parameters, "
            f"{self.minutes:.1f} minutes on {self.device}",
            f"  published  {published}",
        ]
        lines += [f"  changed    {', '.join(self.changes)}"] if self.changes else []
        lines += [f"  before     {recipe.measured}"] if recipe.measured else []
        lines += [f"  protocol   {recipe.protocol}"] if recipe.protocol else []
        lines += [f"  data       {self.data.hash}", f"             {self.data.verdict}"]
        return "\n".join([*lines, f"  model      {self.folder}"])


def recipe_names(folder: Path = FOLDER) -> list[str]:
    """Names of all recipes."""
    found = {path.stem for path in folder.glob("*.toml")} | {path.stem for path in folder.glob("*.py")}
    return sorted(found - set(NOT_RECIPES))


def find_recipe(name: str, folder: Path = FOLDER) -> Path:
    """The file of a recipe, by its path or by its name in the repository."""
    for path in (Path(name), folder / f"{name}.toml", folder / f"{name}.py"):
        if path.suffix in (".toml", ".py") and path.is_file():
            return path
    known = recipe_names(folder)
    if not known:
        raise UserError(
            f"There are no recipes in {folder}.", "They come with the repository: give the path of a recipe's file."
        )
    raise unknown_name("recipe", name, known)


def read_recipe(file: TomlFile) -> Recipe:
    """The table `recipe` of a TOML file."""
    path, table = file.path, file.data.get("recipe")
    if not isinstance(table, dict) or not table.get("train"):
        raise UserError(
            f"{path} is a config without a recipe: it names no training file.",
            'Add [recipe] with train = "FILE", metric and published; or use: unrolled train ' + str(path),
        )
    return read_config(Recipe, None, extra=table)


def reproduce(
    name: str,
    data: str | Path,
    *,
    device: str = "auto",
    seed: int | None = None,
    overrides: Sequence[str] = (),
    out: Path | None = None,
    quiet: bool = False,
) -> Outcome:
    """Train a recipe on the files under `data` and score it."""
    path = find_recipe(name)
    target = find_target(path)
    assert target.file is not None
    recipe = read_recipe(target.file)
    _check_files(recipe, Path(data))
    read = recipe_data(path, Path(data))
    assert read is not None  # a config names its files
    if not quiet:
        print(read, file=sys.stderr, flush=True)
    target.configure(overrides)  # report mistakes before a folder is made
    folder = new_folder(out, path.stem)
    files = prepare_files(recipe, Path(data), folder.with_name(f"{folder.name}-data"))
    extra: dict[str, Any] = {"data.train": str(files["train"]), "data.valid": str(files["valid"])}
    extra |= {"train.device": device} | ({} if seed is None else {"train.seed": seed})
    config: Any = target.configure(overrides, extra)
    began = time.perf_counter()
    model = TrainingJob(config).run(folder, quiet=quiet)
    minutes = (time.perf_counter() - began) / 60
    scores = model.evaluate(files["test"])
    if recipe.metric not in scores:
        raise unknown_name("metric", recipe.metric, scores)
    facts = _device(model), config.train.seed, tuple(overrides), model.num_parameters, folder
    return Outcome(path.stem, recipe, scores, minutes, *facts, read)


def run_script(path: Path, data: str | Path, device: str) -> int:
    """Run a recipe that is a script in a new process; returns its exit code."""
    where = [] if device == "auto" else ["--device", device]
    return subprocess.run([sys.executable, str(path), "--data", str(data), *where]).returncode


def recipe_summary(path: Path) -> str:
    """The description of a recipe in one line."""
    if path.suffix == ".toml":
        return read_recipe(read_toml(path)).about
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.splitlines()[0] if text else ""


def _check_files(recipe: Recipe, data: Path) -> None:
    if not data.is_dir():
        raise UserError(f"{data} is not a folder.", "Give the folder of the data sets: --data FOLDER.")
    for file in (recipe.train, recipe.valid, recipe.test):
        if file is not None and not (data / file).is_file():
            raise UserError(f"{data / file} does not exist.", f"The folder that --data names should have {file}.")


def prepare_files(recipe: Recipe, data: Path, work: Path) -> dict[str, Path]:
    """The files to train, validate and test on; derived files are written to `work`.

    They stay, so that a stopped run can resume.
    """
    _check_files(recipe, data)
    given = {"train": recipe.train, "valid": recipe.valid or recipe.test, "test": recipe.test}
    texts = {name: read_text(data / file) for name, file in given.items() if file is not None}
    if recipe.test is not None and not recipe.strip_lines:
        return {name: data / file for name, file in given.items() if file is not None}
    if recipe.test is None:
        cut = round(len(texts["train"]) * (1 - recipe.tail))
        texts |= {"train": texts["train"][:cut], "test": texts["train"][cut:]}
        texts.setdefault("valid", texts["test"])
    work.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        lines = "".join(f"{line.strip()}\n" for line in text.splitlines()) if recipe.strip_lines else text
        (work / f"{name}.txt").write_text(lines)
    return {name: work / f"{name}.txt" for name in texts}


def _device(model: Model) -> str:
    if model.device.type == "cuda":
        return torch.cuda.get_device_name(model.device)
    return f"{model.device.type}, {torch.get_num_threads()} threads"
