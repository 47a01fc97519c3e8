"""`unrolled train`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

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

Horizon = Annotated[
    list[str] | None,
    typer.Option(
        metavar="STEPS", help="forecast: steps ahead (data.horizon); for several 1,6,24, or the option again and again."
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
    horizon: Horizon = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, … (train.device).")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Run folder; default: a new one under runs/.")
    ] = None,
    init: Annotated[str | None, typer.Option(metavar="MODEL", help="Start from a model, on new data.")] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Go on with a run; --set train.max_steps=… makes it longer."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing while training.")] = False,
) -> None:
    """Train a model from a file of examples.

    The run folder gets config.toml, best.safetensors, last.safetensors, metrics.jsonl, updates.csv, curves.png.
    """
    if target is None and resume is None:
        raise UserError("What should be trained?", "Try: unrolled train generate --train book.txt")
    from unrolled import api
    from unrolled.jobs import TrainingJob, resume_run
    from unrolled.training.folder import CONFIG, check_free, check_run

    if resume is not None:
        if target or out or init:
            given = {str(target): target, "--out": out, "--init": init}
            raise UserError(
                "--resume goes on with a run in its own folder, from its own model.",
                f"Leave out {' and '.join(name for name, value in given.items() if value)}.",
            )
        check_run(resume)
        target = str(resume / CONFIG)
    assert target is not None
    extra = keys_of_options(
        target,
        overrides or [],
        {
            "--train": ("data.train", train_file),
            "--valid": ("data.valid", valid_file),
            "--train-source": ("data.train_source", train_source),
            "--train-target": ("data.train_target", train_target),
            "--valid-source": ("data.valid_source", valid_source),
            "--valid-target": ("data.valid_target", valid_target),
            "--images": ("data.images", images),
            "--horizon": ("data.horizon", horizon_of(horizon)),
            "--device": ("train.device", device),
        },
    )
    if resume is not None:
        resume_run(resume, overrides or [], extra, quiet=quiet)
        return
    config = api.configure(target, overrides or [], extra)
    if out is not None:
        check_free(out)  # before all data is read
    TrainingJob(config, init=init).run(out, quiet=quiet)


def horizon_of(given: list[str] | None) -> int | list[int] | None:
    """The value of data.horizon that --horizon means.

    >>> horizon_of(["1,6", "24"]), horizon_of(["[1, 6]"]), horizon_of(["3"]), horizon_of(None)
    ([1, 6, 24], [1, 6], 3, None)
    """
    words = []
    for text in given or ():
        inner = text.strip()
        inner = inner[1:-1] if inner.startswith("[") and inner.endswith("]") else inner
        some = [word.strip() for word in inner.split(",")]
        if not all(word.removeprefix("-").isdecimal() for word in some):
            raise UserError(f"--horizon {text!r} is no number of steps.", "Expected whole numbers: 1, or 1,6,24.")
        words += some
    steps = [int(word) for word in words]
    return steps[0] if len(steps) == 1 else steps or None


def keys_of_options(target: str, overrides: Sequence[str], options: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
    """The config keys that options mean: the task has them, and --set does not say something else."""
    from unrolled import api
    from unrolled.config import keys
    from unrolled.tasks import TASKS

    task, _ = api.task_of(target)
    known = keys(TASKS[task].config_class)
    changed = {change.partition("=")[0].strip() for change in overrides}
    found = {}
    for option, (key, value) in options.items():
        if value is None:
            continue
        if key not in known:
            raise UserError(f"{option} is not for {task}.", "Leave it out.")
        if key in changed:
            raise UserError(f"{option} and --set {key} are the same thing.", "Give one of the two.")
        found[key] = value
    return found
