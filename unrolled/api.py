"""The verbs as Python functions: train, sweep, resume, load, check, compare. The command line calls these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unrolled.config import changes_of
from unrolled.corpus.verb import run
from unrolled.data.memory.held import given
from unrolled.errors import UserError
from unrolled.jobs import DryRun, TrainingJob, configure, dry_run, find_target, load_model, restarted_run, resume_run
from unrolled.model import Model
from unrolled.see import length_figure
from unrolled.see.figures.lengths import check_picture
from unrolled.tasks import Task
from unrolled.training.folder import check_free
from unrolled.training.watching import Callback

if TYPE_CHECKING:
    from unrolled.export.job import Exported
    from unrolled.sweeps import Sweep

__all__ = ["check", "compare", "configure", "export_onnx", "load", "resume", "run", "sweep", "train"]


def load(path: str | Path, *, task: Task | None = None, device: str = "cpu") -> Model:
    """A model from its file, the best of a run folder, or one of the hub: hub:ORG/NAME, hub:ORG/NAME@REVISION.

    No code is ever loaded from the file: a task of your own is given as `task`.
    """
    return load_model(path, task=task, device=device)


def train(
    target: str | Path | Task = "generate",
    *,
    train: Any = None,
    valid: Any = None,
    out: str | Path | None = None,
    init: str | Path | None = None,
    init_names: Mapping[str, str] | None = None,
    set: Mapping[str, Any] | Sequence[str] | None = None,
    task: Task | None = None,
    quiet: bool = False,
    callbacks: Sequence[Callback] = (),
) -> Model:
    """Train a task and return the best model; everything is kept in the run folder.

    `target` is the name of a task, a TOML file, or a task of your own. `train` and `valid` are paths, of a file, a
    folder or a pattern such as data/*.csv; or data in memory: a DataFrame of pandas or polars, a Hugging Face Dataset,
    a list or an iterator of pairs (input, answer), of dictionaries or of texts, a tuple (inputs, answers), or arrays
    (docs/data.md). The model is that of a file with this content. `set` changes keys: {"model.cell": "gru"}.

    `init` is a model to start from: a path, hub:ORG/NAME, or weights that another program wrote, whose modules
    `init_names` names: {"rnn": "layer"}, see `unrolled.nn.take_weights`. `out` is the run folder, by default a new one
    under runs/; an existing run is never overwritten. `task` is the task itself where its name alone does not make it:
    `Caption(encoder=…)`. `callbacks` watch the run and can stop it, see `Callback`.
    """
    task = target if isinstance(target, Task) else task
    if out is not None and restarted_run() is None:
        check_free(Path(out))  # before all data is read
    with given(train=train, valid=valid) as names:
        extra = {f"data.{key}": name for key, name in names.items()}
        if (begun := restarted_run()) is not None:
            return resume_run(begun, [], {}, task=task, quiet=quiet, callbacks=callbacks)
        overrides, changes = changes_of(set)
        config = configure(target, overrides, {**extra, **changes}, task=task)
        job = TrainingJob(config, init=init, task=task, init_names=init_names)
        return job.run(Path(out) if out is not None else None, quiet=quiet, callbacks=callbacks)


def resume(
    folder: str | Path,
    *,
    train: Any = None,
    valid: Any = None,
    set: Mapping[str, Any] | Sequence[str] | None = None,
    task: Task | None = None,
    quiet: bool = False,
    callbacks: Sequence[Callback] = (),
) -> Model:
    """Continue a stopped run; the result equals that of an uninterrupted run.

    `set` changes the end of the run ({"train.max_steps": 2000}, train.epochs, train.patience, train.eval_every),
    train.lr and clipping, the device, and the paths of the same data. The run's config.toml keeps the changes.

    A run on data in memory needs the same data again, as `train` and `valid`; other data is an error.
    """
    overrides, changes = changes_of(set)
    with given(train=train, valid=valid) as names:
        again = {f"data.{key}": name for key, name in names.items()}
        return resume_run(Path(folder), overrides, {**again, **changes}, task=task, quiet=quiet, callbacks=callbacks)


def sweep(
    target: str | Path | Task,
    *,
    train: str | Path | None = None,
    valid: str | Path | None = None,
    set: Mapping[str, Any] | Sequence[str] | None = None,
    out: str | Path | None = None,
    init: str | Path | None = None,
    task: Task | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Sweep:
    """Search for good settings: many trials of a task, each with other values of some keys.

    `set` gives keys the values to try: {"train.lr": unrolled.log(1e-4, 1e-2), "model.cell": "choice(lstm, gru)"}, or
    one value for all. `settings` are those of the sweep: trials, time ("2h", or seconds), workers, sampler, pruner,
    seed, keep. `out` is its folder, by default one under runs/, the same for the same plan: a stopped sweep goes on.
    The result has `best`, `best_score`, `best_model`, `best_config`, `trials`, `importance` and `to_csv`.
    """
    from unrolled.sweeps import run_sweep

    task = target if isinstance(target, Task) else task
    files = {name: value for name, value in {"train": train, "valid": valid}.items() if value is not None}
    for name, value in files.items():
        if not isinstance(value, str | Path):
            raise UserError(
                f"{name} is {type(value).__name__}; a sweep reads files, as its processes share them.",
                "Write the data to a file.",
            )
    extra = {f"data.{name}": str(value) for name, value in files.items()}
    overrides, changes = changes_of(set)
    if isinstance(settings.get("time"), (int, float)):
        settings["time"] = f"{settings['time']}s"
    return run_sweep(
        find_target(target, task),
        overrides,
        {**extra, **changes},
        settings,
        out=None if out is None else Path(out),
        init=None if init is None else str(init),
        quiet=quiet,
    )


def check(
    target: str | Path | Task,
    overrides: list[str] | None = None,
    extra: Mapping[str, Any] | None = None,
    *,
    task: Task | None = None,
) -> DryRun:
    """A dry run: the config's errors, facts about the data, two updates, and an estimate of memory and time."""
    task = target if isinstance(target, Task) else task
    return dry_run(configure(target, overrides, extra, task=task), task)


def compare(
    models: Sequence[str | Path],
    data: Any,
    picture: str | Path | None = None,
    *,
    device: str = "cpu",
    set: Mapping[str, Any] | Sequence[str] | None = None,
    **options: Any,
) -> dict[str, dict[str, Any]]:
    """Scores of several models on the same data, and a picture of them by the length of the source."""
    loaded = {str(path): load(path, device=device) for path in models}
    return compare_loaded(loaded, data, picture, set=set, **options)


def compare_loaded(
    models: Mapping[str, Model],
    data: Any,
    picture: str | Path | None = None,
    *,
    set: Mapping[str, Any] | Sequence[str] | None = None,
    **options: Any,
) -> dict[str, dict[str, Any]]:
    """`compare`, of models by name."""
    place = check_picture(picture) if picture is not None else None
    tasks = {model.task.name for model in models.values()}
    if len(tasks) > 1:
        raise UserError(f"The models are of {' and '.join(sorted(tasks))}.", "Give those of one task.")
    scores = {name: model.evaluate(data, set=set, **options) for name, model in models.items()}
    if place is not None:
        tables = {name: found.get("by_length") for name, found in scores.items()}
        if not all(tables.values()):
            raise UserError("There is no picture of these scores.", "--picture is for models of translate.")
        length_figure({name: table for name, table in tables.items() if table}).savefig(place, dpi=120)
    return scores


def export_onnx(
    model: Model,
    folder: str | Path,
    *,
    weights: str = "fp32",
    check: bool = True,
    force: bool = False,
    web: bool = False,
    onnxruntime_web: str | Path | None = None,
    score_on: str | Path | None = None,
) -> Exported:
    """Write a model as ONNX graphs and a manifest, which run without torch: `unrolled.runtime.load(folder)`.

    `weights` are stored in fp32, fp16 or int8. With `check` every graph is compared with the network on 100 random
    batches, and nothing is left behind if one differs. An existing folder is replaced only with `force`, and only if
    it holds an exported model.

    With `web` the folder has a page that runs the model in a browser (docs/web.md). It needs onnxruntime-web, from
    npm or from `onnxruntime_web`: a folder, or an archive of `npm pack`.

    `score_on` is a file to score the model and its export on, in `scores` of the result: the cost of smaller weights.
    """
    try:
        from unrolled.export.job import export
    except ModuleNotFoundError as error:
        if error.name != "onnx":
            raise
        raise UserError(
            "onnx is not installed: it writes graphs.", "Install it: pip install 'unrolled[export]'"
        ) from None
    return export(
        model,
        folder,
        weights=weights,
        check=check,
        force=force,
        web=web,
        onnxruntime_web=onnxruntime_web,
        score_on=score_on,
    )
