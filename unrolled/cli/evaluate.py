"""`unrolled eval`."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def evaluate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A run folder or a model file.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="Data the model has not been trained on.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Score a model on a file."""
    from unrolled import api

    loaded = api.load(model, device=device)
    scores = loaded.evaluate(file)
    typer.echo(json.dumps(scores, ensure_ascii=False) if as_json else loaded.task.report(scores))
