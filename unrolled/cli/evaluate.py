"""`unrolled eval`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from unrolled.cli.options import AsJson, Device, FileKeys, ModelPath, OwnTask, chosen_options
from unrolled.corpus.loading import load_either, with_text_scorer
from unrolled.errors import UserError


def evaluate(
    model: ModelPath,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Data that the model was not trained on.")],
    as_json: AsJson = False,
    overrides: FileKeys = None,
    device: Device = "cpu",
    own: OwnTask = None,
    **values: Any,
) -> None:
    """Score a model on a file.

    MODEL may be the folder of an exported model: it is scored without torch (see `unrolled export`).
    """
    loaded = load_either(model, own, device)
    options = with_text_scorer(chosen_options("eval", loaded.task, values), device)
    picture, others = options.pop("picture", None), options.pop("others", ())
    if others and picture is None:
        raise UserError("--with adds a model to a picture.", "Say where the picture goes: --picture lengths.png")
    if hasattr(loaded.task, "check"):  # of an exported model, which draws nothing
        loaded.task.check({"picture": picture})
    if picture is None:
        scores = loaded.evaluate(file, set=overrides, **options)
    else:
        from unrolled import api

        models = {model: loaded} | {other: api.load(other, task=own, device=device) for other in others}
        scores = api.compare_loaded(models, file, picture, set=overrides, **options)[model]
    typer.echo(json.dumps(scores, ensure_ascii=False) if as_json else loaded.runner.report(scores))
