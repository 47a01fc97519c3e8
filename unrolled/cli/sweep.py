"""`unrolled sweep`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
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
SweepFolder = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="Folder of the sweep. Default: one under runs/, the same for the same command."
    ),
]
Init = Annotated[str | None, typer.Option(metavar="MODEL", help="Start every trial from a model or hub:ORG/NAME.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing while the sweep runs.")]


@dataclass(frozen=True)
class SweepFlags:
    """Flags that are settings of a sweep; None: as the config file says."""

    trials: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Trials in all. Default: 20, or no limit with --time.")
    ] = None
    time: Annotated[str | None, typer.Option(metavar="TIME", help="Stop after this time: 90s, 30m, 2h, 1h30m.")] = None
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Processes on this machine, which divide its threads. Default: 1."),
    ] = None
    sampler: Annotated[
        str | None,
        typer.Option(metavar="tpe|random", help="tpe learns from the trials before; random does not. Default: tpe."),
    ] = None
    pruner: Annotated[
        str | None,
        typer.Option(
            metavar="median|hyperband|none",
            help="Ends trials early whose validation scores are poor beside those of others. Default: median.",
        ),
    ] = None
    seed: Annotated[int | None, typer.Option(metavar="N", min=0, help="Seed of the search. Default: 0.")] = None
    keep: Annotated[bool, typer.Option("--keep", help="Keep the models and checkpoints of all trials.")] = False

    @property
    def given(self) -> dict[str, Any]:
        """Those that the user gave."""
        return {name: value for name, value in asdict(self).items() if value is not None and value is not False}


def sweep(
    target: Target,
    search: SweepFlags,
    overrides: Searched = None,
    out: SweepFolder = None,
    init: Init = None,
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
    run_sweep(found, overrides or [], keys, search.given, out=out, init=init, quiet=quiet)
