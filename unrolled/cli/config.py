"""`unrolled new`, `unrolled check` and `unrolled info`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from unrolled.cli.train import Horizon, Overrides, horizon_of, keys_of_options
from unrolled.errors import UserError


def new(
    task: Annotated[str, typer.Argument(metavar="TASK", help="A task, such as generate.")],
    path: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="Where to write it.")],
    overrides: Overrides = None,
) -> None:
    """Write a config with every key, its meaning, choices and default."""
    from unrolled import api
    from unrolled.config import write_toml
    from unrolled.training.checkpoint import write_atomically

    if path.exists():
        raise UserError(f"{path} is there already.", "Choose another name.")
    header = (
        f"A config of unrolled's task {task}. Train it with: unrolled train {path}\n"
        'Where a comment says "or none", write "none" in quotes, or leave the key out for its default.'
    )
    write_atomically(path, write_toml(api.configure(task, overrides), comments=True, header=header))
    typer.echo(f"Wrote {path}. Next: unrolled check {path}", err=True)


def check(
    target: Annotated[str, typer.Argument(metavar="TASK|CONFIG.toml", help="A task or a config file.")],
    train_file: Annotated[str | None, typer.Option("--train", metavar="FILE", help="Training data.")] = None,
    valid_file: Annotated[str | None, typer.Option("--valid", metavar="FILE", help="Validation data.")] = None,
    overrides: Overrides = None,
    horizon: Horizon = None,
) -> None:
    """Try a config without training: its mistakes, facts about the data, one update, time and memory."""
    from unrolled import api

    options = {
        "--train": ("data.train", train_file),
        "--valid": ("data.valid", valid_file),
        "--horizon": ("data.horizon", horizon_of(horizon)),
    }
    extra = keys_of_options(target, overrides or [], options)
    typer.echo(str(api.check(target, overrides, extra)))


def info(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A run folder or a model file.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """Show what a model is: its task, config, scores and versions."""
    from unrolled import api
    from unrolled.config import write_toml
    from unrolled.model import find_file

    loaded = api.load(model)
    about: dict[str, Any] = {
        "file": str(find_file(model)),
        "task": loaded.task.name,
        "parameters": loaded.num_parameters,
        "roles": dict(loaded.task.description.roles(loaded.assets)),
        "remarks": loaded.task.description.remarks(loaded),
        "scores": loaded.scores,
        "versions": loaded.versions,
        "config": loaded.config.model_dump(mode="json"),
    }
    if as_json:
        typer.echo(json.dumps(about))
        return
    for name in ("file", "task", "parameters"):
        typer.echo(f"{name:<10}  {about[name]}")
    for name, text in about["roles"].items():
        typer.echo(f"{name:<10}  {text}")
    typer.echo("scores      " + ", ".join(f"{k} {v:.4g}" for k, v in loaded.scores.items()))
    typer.echo("versions    " + ", ".join(f"{k} {v}" for k, v in loaded.versions.items()))
    for remark in about["remarks"]:
        typer.echo(remark)
    typer.echo("\n" + write_toml(loaded.config, comments=False), nl=False)
