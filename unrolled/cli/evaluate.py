"""`unrolled eval`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from unrolled.cli.run import (
    RECOGNIZE,
    FileKeys,
    LanguageModel,
    LanguageModelWeight,
    Lexicon,
    UnknownPenalty,
    Window,
    WordBonus,
    flag,
    options_of,
)
from unrolled.errors import UserError

OPTIONS = ("beam", "length_penalty", "alpha", *RECOGNIZE, "tune")


def evaluate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A run folder or a model file.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="Data the model has not been trained on.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    overrides: FileKeys = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    target: Annotated[
        str | None, typer.Option(metavar="FILE", help="translate: the targets, where FILE holds only sources.")
    ] = None,
    images: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="caption: where the pictures are; none: where those of training were."),
    ] = None,
    picture: Annotated[
        str | None, typer.Option(metavar="FILE", help="translate: draw BLEU against the source's length, .png or .svg.")
    ] = None,
    beside: Annotated[
        list[str] | None, typer.Option("--with", metavar="MODEL", help="Another model in the picture; again and again.")
    ] = None,
    beam: Annotated[
        int | None, typer.Option(min=1, help="recognize, caption: hypotheses side by side (100; 5).")
    ] = None,
    lexicon: Lexicon = None,
    lm: LanguageModel = None,
    lm_weight: LanguageModelWeight = None,
    word_bonus: WordBonus = None,
    unknown_penalty: UnknownPenalty = None,
    window: Window = None,
    tune: Annotated[
        bool | None,
        typer.Option("--tune", help="recognize: find --lm-weight and --word-bonus with the fewest errors on FILE."),
    ] = None,
    length_penalty: Annotated[
        str | None, typer.Option(help="caption: none, average or gnmt, what log P is divided by (gnmt).")
    ] = None,
    alpha: Annotated[float | None, typer.Option(help="caption: exponent of gnmt; more: longer captions (1).")] = None,
) -> None:
    """Score a model on a file."""
    from unrolled import api

    given = dict(locals())
    options = {name: given[name] for name in OPTIONS if given[name] is not None}

    loaded = api.load(model, device=device)
    for name, path, task in (("--target", target, "translate"), ("--images", images, "caption")):
        if path is not None and loaded.task.name != task:
            raise UserError(f"{name} is not for a model of {loaded.task.name}.", f"It is for {task}.")
    second = target or images
    data: Any = file if second is None else (file, second)
    if beside and picture is None:
        raise UserError("--with is for a model in a picture.", "Say where that goes: --picture lengths.png")
    if picture is not None:
        for name in options:
            raise UserError(f"{flag(name)} does not go with --picture.", "Leave one of them out.")
        scores = api.compare([model, *(beside or [])], data, picture, device=device, set=overrides)[model]
    else:
        with options_of(loaded.task.name, OPTIONS):
            scores = loaded.evaluate(data, set=overrides, **options)
    typer.echo(json.dumps(scores, ensure_ascii=False) if as_json else loaded.runner.report(scores))
