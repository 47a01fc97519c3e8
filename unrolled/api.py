"""The verbs as Python functions: train, resume, load, check, compare. The command line calls these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unrolled.config import changes_of
from unrolled.corpus import CorpusRun, CorpusWork, run_corpus
from unrolled.corpus.loading import format_of, load_either
from unrolled.corpus.work import place_of
from unrolled.errors import UserError, unknown_name
from unrolled.jobs import DryRun, TrainingJob, configure, dry_run, load_model, restarted_run, resume_run
from unrolled.model import Model
from unrolled.see import length_figure
from unrolled.see.figures.lengths import check_picture
from unrolled.tasks import Request, Task
from unrolled.tasks.answer_lines import FORMATS, Format
from unrolled.text.files import check_path
from unrolled.training.folder import check_free
from unrolled.training.watching import Callback

if TYPE_CHECKING:
    from unrolled.export.job import Exported

__all__ = ["check", "compare", "configure", "export_onnx", "load", "resume", "run", "train"]


def load(path: str | Path, *, task: Task | None = None, device: str = "cpu") -> Model:
    """A model from its file, the best of a run folder, or one of the hub: hub:ORG/NAME, hub:ORG/NAME@REVISION.

    No code is ever loaded from the file: a task of your own is given as `task`.
    """
    return load_model(path, task=task, device=device)


def train(
    target: str | Path | Task = "generate",
    *,
    train: str | Path | None = None,
    valid: str | Path | None = None,
    out: str | Path | None = None,
    init: str | Path | None = None,
    init_names: Mapping[str, str] | None = None,
    set: Mapping[str, Any] | Sequence[str] | None = None,
    task: Task | None = None,
    quiet: bool = False,
    callbacks: Sequence[Callback] = (),
) -> Model:
    """Train a task and return the best model; everything is kept in the run folder.

    `target` is the name of a task, a TOML file, or a task of your own. `train` and `valid` are files, `set` changes
    keys: {"model.cell": "gru"}. `init` is a model to start from: a path, hub:ORG/NAME, or weights that another program
    wrote, whose modules `init_names` names: {"rnn": "layer"}, see `unrolled.nn.take_weights`. `out` is the run folder,
    by default a new one under runs/; an existing run is never overwritten. `task` is the task itself where its name
    alone does not make it: `Caption(encoder=…)`. `callbacks` watch the run and can stop it, see `Callback`.
    """
    task = target if isinstance(target, Task) else task
    if (begun := restarted_run()) is not None:
        return resume_run(begun, [], {}, task=task, quiet=quiet, callbacks=callbacks)
    extra = {f"data.{key}": str(value) for key, value in _files(train=train, valid=valid).items()}
    overrides, changes = changes_of(set)
    config = configure(target, overrides, {**extra, **changes}, task=task)
    if out is not None:
        check_free(Path(out))  # before all data is read
    job = TrainingJob(config, init=init, task=task, init_names=init_names)
    return job.run(Path(out) if out is not None else None, quiet=quiet, callbacks=callbacks)


def _files(**values: Any) -> dict[str, Any]:
    """The files among these, each a path; data in memory is an error."""
    files = {name: value for name, value in values.items() if value is not None}
    for name, value in files.items():
        check_path(value, name)
    return files


def run(
    model: str | Path | Model,
    files: str | Path | Sequence[str | Path],
    *,
    out: str | Path,
    workers: int = 1,
    format: Format | None = None,
    keep: Sequence[str] = (),
    force: bool = False,
    set: Mapping[str, Any] | Sequence[str] | None = None,
    device: str = "cpu",
    quiet: bool = False,
    **options: Any,
) -> None:
    """Answer all inputs of files, in order, to a new file: `unrolled run MODEL FILES --out OUT --workers N`.

    Files may be larger than memory. Stopped at any instant, even by SIGKILL, the same call goes on, and the file gets
    the bytes of an undisturbed run. `workers` are processes that share the weights. `format` is text, jsonl or csv, by
    default as `out` is named; `keep` names columns to copy, `set` changes keys about reading the files. `force`
    replaces a file that exists. The other options are those of `model.predict`.
    """
    given, place = [files] if isinstance(files, (str, Path)) else list(files), Path(out)
    if not isinstance(model, (str, Path, Model)):
        raise UserError(f"The model is {type(model).__name__}.", "Give its path, or a Model.")
    loaded = model if isinstance(model, Model) else load_either(str(model), None, device, mapped=True)
    loaded.task.options.check("run", options)
    form = format or format_of(place)
    if form not in FORMATS:
        raise unknown_name("format", form, FORMATS)
    if isinstance(model, Model):
        work = CorpusWork("", form, options, set, str(model.device), place_of(model.task))
    else:
        work = CorpusWork(str(model), form, options, set, device)
    request = Request(files=[str(file) for file in given], format=form, keep=keep)
    run_corpus(CorpusRun(work, request, place, workers, force, quiet), loaded)


def resume(
    folder: str | Path,
    *,
    set: Mapping[str, Any] | Sequence[str] | None = None,
    task: Task | None = None,
    quiet: bool = False,
    callbacks: Sequence[Callback] = (),
) -> Model:
    """Continue a stopped run; the result equals that of an uninterrupted run.

    `set` changes the end of the run ({"train.max_steps": 2000}, train.epochs, train.patience, train.eval_every),
    train.lr and clipping, the device, and the paths of the same data. The run's config.toml keeps the changes.
    """
    return resume_run(Path(folder), *changes_of(set), task=task, quiet=quiet, callbacks=callbacks)


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
