"""`unrolled reproduce`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unrolled.cli.options import AsJson, Overrides
from unrolled.cli.train import Quiet, RunFolder
from unrolled.errors import UserError

if TYPE_CHECKING:
    from unrolled.recipe_data import RecipeData


def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME|RECIPE.toml", help="A recipe. Default: list all recipes.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Folder of the data sets. Default: $UNROLLED_DATA.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, … (train.device).")] = "auto",
    seed: Annotated[int | None, typer.Option(min=0, help="Random seed (train.seed). Default: the recipe's.")] = None,
    overrides: Overrides = None,
    out: RunFolder = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    check_data: Annotated[
        bool,
        typer.Option("--check-data", help="Only hash the data and compare it with that of the stored scores."),
    ] = False,
) -> None:
    """Train a recipe, and show its score beside the published one.

    The output has the SHA-256 of the data, and says whether the stored score was made with the same data.
    """
    from unrolled import recipes
    from unrolled.recipe_data import FOLDER

    place = data or os.environ.get("UNROLLED_DATA")
    if check_data:
        _check_data([name] if name else recipes.recipe_names(), place, as_json)
        return

    if name is None:
        for known in recipes.recipe_names():
            path = recipes.find_recipe(known)
            typer.echo(f"{known:<24}{recipes.recipe_summary(path)}" + (" *" if path.suffix == ".py" else ""))
        typer.echo(f"\n* A script, with options of its own: python {FOLDER}/NAME.py --help")
        return
    path = recipes.find_recipe(name)
    place = _place(path, place)
    if path.suffix == ".py":
        if seed is not None or overrides or out or as_json:
            raise UserError(f"{name} is a script with options of its own.", f"See: python {path} --help")
        typer.echo(_data(path, place) or f"{path} does not name its data files: there is no hash.")
        sys.stdout.flush()
        raise typer.Exit(recipes.run_script(path, place, device))
    outcome = recipes.reproduce(name, place, device=device, seed=seed, overrides=overrides or [], out=out, quiet=quiet)
    typer.echo(json.dumps(outcome.record(), ensure_ascii=False) if as_json else str(outcome))


def _place(path: Path, data: str | None) -> str:
    """The folder of the data sets; a recipe that makes its own data needs none."""
    from unrolled.recipe_data import file_patterns

    if data is None and file_patterns(path) != ():
        raise UserError("Where is the data?", "Give --data FOLDER, or set UNROLLED_DATA.")
    return data or "."


def _data(path: Path, place: str) -> RecipeData | None:
    from unrolled.recipe_data import recipe_data

    return recipe_data(path, Path(place))


def _check_data(names: Sequence[str], data: str | None, as_json: bool) -> None:
    """Print the hash of each recipe's data, and whether its stored score was made with it."""
    from unrolled import recipes

    for name in names:
        path = recipes.find_recipe(name)
        try:
            found = _data(path, _place(path, data))
        except UserError as error:
            if len(names) == 1:
                raise
            record, text = {"error": str(error)}, str(error)
        else:
            text = "It does not name its data files." if found is None else f"{found.hash[:16]}  {found.verdict}"
            record = {} if found is None else found.record()
        typer.echo(json.dumps({"name": path.stem, **record}) if as_json else f"{path.stem:<24}{text}")
