"""`unrolled reproduce`."""

from __future__ import annotations

import json
import os
from typing import Annotated

import typer

from unrolled.cli.options import AsJson, Overrides
from unrolled.cli.train import Quiet, RunFolder
from unrolled.errors import UserError


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
) -> None:
    """Train a recipe, and show its score beside the published one."""
    from unrolled import recipes

    if name is None:
        for known in recipes.recipe_names():
            path = recipes.find_recipe(known)
            typer.echo(f"{known:<24}{recipes.recipe_summary(path)}" + (" *" if path.suffix == ".py" else ""))
        typer.echo(f"\n* A script, with options of its own: python {recipes.FOLDER}/NAME.py --help")
        return
    path = recipes.find_recipe(name)
    place = data or os.environ.get("UNROLLED_DATA")
    if place is None:
        raise UserError("Where is the data?", "Give --data FOLDER, or set UNROLLED_DATA.")
    if path.suffix == ".py":
        if seed is not None or overrides or out or as_json:
            raise UserError(f"{name} is a script with options of its own.", f"See: python {path} --help")
        raise typer.Exit(recipes.run_script(path, place, device))
    outcome = recipes.reproduce(name, place, device=device, seed=seed, overrides=overrides or [], out=out, quiet=quiet)
    typer.echo(json.dumps(outcome.record(), ensure_ascii=False) if as_json else str(outcome))
