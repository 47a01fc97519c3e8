"""`unrolled new`, `unrolled check` and `unrolled info`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from unrolled.cli.options import AsJson, ModelPath, Overrides, OwnTask, config_keys
from unrolled.errors import UserError


def new(
    target: Annotated[
        str, typer.Argument(metavar="TASK", help="A task, such as generate, or FILE.py:CLASS of your own.")
    ],
    path: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="The file to write.")],
    overrides: Overrides = None,
    own: OwnTask = None,
) -> None:
    """Write a config with every key, its meaning, choices and default."""
    from unrolled.config import write_toml
    from unrolled.jobs import find_target
    from unrolled.training.checkpoint import write_atomically

    if path.exists():
        raise UserError(f"{path} exists.", "Choose another name.")
    found = find_target(target, own)
    more = "" if own is None else f" --task {target}"
    header = (
        f"A config of unrolled's task {found.task.name}. Train it with: unrolled train {path}{more}\n"
        'Where a comment says "or none", write "none" in quotes, or leave the key out for its default.'
    )
    write_atomically(path, write_toml(found.configure(overrides or []), comments=True, header=header))
    typer.echo(f"Wrote {path}. Next: unrolled check {path}{more}", err=True)


def check(
    target: Annotated[
        str, typer.Argument(metavar="TASK|CONFIG.toml", help="A task, a config file, or FILE.py:CLASS of your own.")
    ],
    overrides: Overrides = None,
    own: OwnTask = None,
    **values: Any,
) -> None:
    """Try a config without training: its errors, facts about the data, two updates, time and memory."""
    from unrolled.jobs import dry_run, find_target

    found = find_target(target, own)
    config = found.configure(overrides or [], config_keys(found.task, values, overrides))
    typer.echo(str(dry_run(config, found.task)))


def info(model: ModelPath, as_json: AsJson = False, own: OwnTask = None) -> None:
    """Show a model's task, config, scores and versions."""
    from unrolled import api
    from unrolled.config import write_toml
    from unrolled.model import find_file

    file = find_file(model)
    loaded = api.load(file, task=own)
    about: dict[str, Any] = {
        "file": str(file),
        "task": loaded.task.name,
        "parameters": loaded.num_parameters,
        "roles": dict(loaded.task.description.roles(loaded.assets)),
        "remarks": loaded.task.description.remarks(loaded),
        "data": loaded.data,
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
    for name, label in (("source", "data"), ("sha256", "its hash")):
        if name in loaded.data:
            typer.echo(f"{label:<10}  {loaded.data[name]}")
    typer.echo("scores      " + ", ".join(f"{k} {v:.4g}" for k, v in loaded.scores.items()))
    typer.echo("versions    " + ", ".join(f"{k} {v}" for k, v in loaded.versions.items()))
    for remark in about["remarks"]:
        typer.echo(remark)
    typer.echo("\n" + write_toml(loaded.config, comments=False), nl=False)
