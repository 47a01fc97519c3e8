"""`unrolled train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unrolled.errors import UserError

Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a config key, again and again: --set model.cell=gru. `unrolled new` lists them.",
    ),
]


def train(
    target: Annotated[
        str | None, typer.Argument(metavar="TASK|CONFIG.toml", help="A task, such as generate, or a config file.")
    ] = None,
    train_file: Annotated[
        str | None, typer.Option("--train", metavar="FILE", help="Training data (data.train). None: embedded data.")
    ] = None,
    valid_file: Annotated[
        str | None, typer.Option("--valid", metavar="FILE", help="Validation data (data.valid).")
    ] = None,
    train_source: Annotated[
        str | None, typer.Option(metavar="FILE", help="translate: sources, a line each (data.train_source).")
    ] = None,
    train_target: Annotated[
        str | None, typer.Option(metavar="FILE", help="translate: their targets (data.train_target).")
    ] = None,
    valid_source: Annotated[
        str | None, typer.Option(metavar="FILE", help="translate: the same to validate on (data.valid_source).")
    ] = None,
    valid_target: Annotated[str | None, typer.Option(metavar="FILE", help="translate: (data.valid_target).")] = None,
    images: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="caption: the pictures, a folder, .zip or .npz (data.images)."),
    ] = None,
    overrides: Overrides = None,
    horizon: Annotated[
        list[int] | None, typer.Option(help="forecast: steps ahead (data.horizon); again for several.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, … (train.device).")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Run folder; default: a new one under runs/.")
    ] = None,
    init: Annotated[str | None, typer.Option(metavar="MODEL", help="Start from a model, on new data.")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Go on with a run that was stopped.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing while training.")] = False,
) -> None:
    """Train a model from a file of examples.

    The run folder gets config.toml, best.safetensors, last.safetensors, metrics.jsonl, updates.csv, curves.png.
    """
    if resume is not None:
        others = (target, train_file, valid_file, train_source, train_target, valid_source, valid_target)
        if any(others) or images or overrides or horizon or out or init or device:
            raise UserError("--resume goes on with a run as it was.", "Give nothing else but --quiet.")
        from unrolled import api

        api.resume(resume, quiet=quiet)
        return
    if target is None:
        raise UserError("What should be trained?", "Try: unrolled train generate --train book.txt")
    from unrolled import api

    ahead = horizon[0] if horizon and len(horizon) == 1 else horizon
    flags = {
        "data.train": train_file,
        "data.valid": valid_file,
        "data.train_source": train_source,
        "data.train_target": train_target,
        "data.valid_source": valid_source,
        "data.valid_target": valid_target,
        "data.images": images,
        "data.horizon": ahead if horizon else None,
        "train.device": device,
    }
    extra = {key: value for key, value in flags.items() if value is not None}
    config = api.configure(target, overrides or [], extra)
    api.Job(config, init=init).run(out, quiet=quiet)
