"""`unrolled train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from unrolled.cli.options import Overrides, OwnTask, config_keys
from unrolled.errors import UserError

Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing while training.")]
RunFolder = Annotated[Path | None, typer.Option(metavar="FOLDER", help="Run folder. Default: a new one under runs/.")]

InitNames = Annotated[
    list[str] | None,
    typer.Option(
        "--init-names",
        metavar="THEIRS=OURS",
        help="For --init with a state_dict file of torch (.pt, .safetensors): the module that its module becomes, such "
        "as rnn=layer; repeatable.",
    ),
]
Resumed = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Continue a run; --set train.max_steps=… makes it longer."),
]
Callbacks = Annotated[
    list[str] | None,
    typer.Option(
        "--callback",
        metavar="FILE.py:CLASS",
        help="A class of your own that watches the run and can stop it (unrolled.Callback); repeatable.",
    ),
]


def train(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TASK|CONFIG.toml", help="A task, such as generate, a config file, or FILE.py:CLASS of your own."
        ),
    ] = None,
    overrides: Overrides = None,
    out: RunFolder = None,
    init: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Start from a model or hub:ORG/NAME, on new data."),
    ] = None,
    init_names: InitNames = None,
    resume: Resumed = None,
    callback: Callbacks = None,
    quiet: Quiet = False,
    own: OwnTask = None,
    **values: Any,
) -> None:
    """Train a model from a file of examples.

    The run folder gets config.toml, best.safetensors, last.safetensors, metrics.jsonl, updates.csv, curves.png.
    """
    if target is None and resume is None:
        raise UserError("What should be trained?", "Try: unrolled train generate --train book.txt")
    from unrolled.jobs import TrainingJob, find_target, restarted_run, resume_run
    from unrolled.own_code import own_class
    from unrolled.training.folder import CONFIG, check_free, check_run
    from unrolled.training.watching import Callback

    callbacks = [own_class(text, Callback, "callback", "unrolled")() for text in callback or ()]
    if (begun := restarted_run()) is not None:
        resume_run(begun, [], {}, target=find_target(begun / CONFIG, own), quiet=quiet, callbacks=callbacks)
        return
    if resume is not None:
        if target or out or init or init_names:
            given = {str(target): target, "--out": out, "--init": init, "--init-names": init_names}
            raise UserError(
                "--resume continues a run in its own folder, from its own model.",
                f"Leave out {' and '.join(name for name, value in given.items() if value)}.",
            )
        check_run(resume)
    found = find_target(target if resume is None else resume / CONFIG, own)
    keys = config_keys(found.task, values, overrides)
    if resume is not None:
        resume_run(resume, overrides or [], keys, target=found, quiet=quiet, callbacks=callbacks)
        return
    config = found.configure(overrides or [], keys)
    if out is not None:
        check_free(out)  # before all data is read
    names = dict(_pair(text) for text in init_names or ())
    job = TrainingJob(config, init=init, task=found.task, init_names=names)
    job.run(out, quiet=quiet, callbacks=callbacks)


def _pair(text: str) -> tuple[str, str]:
    theirs, equals, ours = text.partition("=")
    if not equals:
        raise UserError(
            f"--init-names {text!r} has no name in the network.", "Expected THEIRS=OURS, such as rnn=layer."
        )
    return theirs.strip(), ours.strip()
