"""`unrolled sweep`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from unrolled.cli.options import OwnTask, config_keys

Target = Annotated[
    str,
    typer.Argument(
        metavar="TASK|CONFIG.toml", help="A task, such as classify, a config file, or FILE.py:CLASS of your own."
    ),
]
Searched = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=SPACE",
        help="The values to try for a config key, in quotes: 'train.lr=log(1e-4, 1e-2)', 'model.dropout=uniform(0, "
        "0.5)', 'model.num_layers=int(1, 4)', 'model.hidden_size=logint(16, 512)', 'model.cell=choice(lstm, gru)'; "
        "or one value for all trials: model.cell=gru. Repeatable. `unrolled new` lists the keys.",
    ),
]
Trials = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Trials in all. Default: 20, or no limit with --time.")
]
Time = Annotated[str | None, typer.Option(metavar="TIME", help="Stop after this time: 90s, 30m, 2h, 1h30m.")]
Workers = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Processes on this machine, which divide its threads. Default: 1."),
]
Sampler = Annotated[
    str | None,
    typer.Option(metavar="tpe|random", help="tpe learns from the trials before; random does not. Default: tpe."),
]
Pruner = Annotated[
    str | None,
    typer.Option(
        metavar="median|hyperband|none",
        help="Ends trials early whose validation scores are poor beside those of others. Default: median.",
    ),
]
Seed = Annotated[int | None, typer.Option(metavar="N", min=0, help="Seed of the search. Default: 0.")]
SweepFolder = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="Folder of the sweep. Default: one under runs/, the same for the same command."
    ),
]
Init = Annotated[str | None, typer.Option(metavar="MODEL", help="Start every trial from a model or hub:ORG/NAME.")]
Keep = Annotated[bool, typer.Option("--keep", help="Keep the models and checkpoints of all trials.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing while the sweep runs.")]


def sweep(
    target: Target,
    overrides: Searched = None,
    trials: Trials = None,
    time: Time = None,
    workers: Workers = None,
    out: SweepFolder = None,
    sampler: Sampler = None,
    pruner: Pruner = None,
    seed: Seed = None,
    init: Init = None,
    keep: Keep = False,
    quiet: Quiet = False,
    own: OwnTask = None,
    **values: Any,
) -> None:
    """Search for good settings: train many models, each with other values of some keys.

    The folder gets trials.csv, best.toml, best.safetensors, pictures and the page sweep.html.
    `unrolled train best.toml` trains the best model again.

    The same command goes on with a stopped sweep. On several machines with a shared folder, it joins.
    """
    from unrolled.jobs import find_target
    from unrolled.sweeps import run_sweep

    found = find_target(target, own)
    keys = config_keys(found.task, values, overrides)
    given = {"trials": trials, "time": time, "workers": workers, "sampler": sampler, "pruner": pruner, "seed": seed}
    settings = {name: value for name, value in given.items() if value is not None} | ({"keep": True} if keep else {})
    run_sweep(found, overrides or [], keys, settings, out=out, init=init, quiet=quiet)
