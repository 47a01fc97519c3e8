"""The verbs as Python functions: train, load, check. The command line calls these."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from unrolled import __version__
from unrolled.config import Section, apply, changes_of, keys, read_config, write_toml
from unrolled.data import Batch
from unrolled.errors import UserError, unknown_name
from unrolled.model import Model, check_path, current_versions, find_file
from unrolled.model_file import building, load_weights, read_about
from unrolled.see import length_figure
from unrolled.see.figures.curves import curves
from unrolled.see.figures.lengths import check_picture
from unrolled.tasks import TASKS, Data, Task
from unrolled.training import Origin, Run, Trainer, hash_of, new_folder
from unrolled.training.changes import END, check_changes
from unrolled.training.checkpoint import DiskError, disk_errors, write_atomically
from unrolled.training.doubts import Doubts
from unrolled.training.folder import (
    BEST,
    CONFIG,
    CURVES,
    INIT,
    LAST,
    LOCK,
    STARTED,
    check_free,
    check_run,
    clear,
    locked,
)
from unrolled.training.loop import StepInfo
from unrolled.training.report import Report, stopped_early
from unrolled.training.schedule import too_slow_a_rise
from unrolled.training.stopping import interruptible

FILE_KEYS = (
    *("train", "valid", "vectors", "train_source", "train_target", "valid_source", "valid_target"),
    *("images", "valid_images", "cache"),
)


def load(path: str | Path, *, task: Task | None = None, device: str = "cpu") -> Model:
    """A model from its file, or the best of a run folder.

    No code is ever loaded from the file: a task of your own is given as `task`.
    """
    file = find_file(path)
    about = read_about(file)
    if task is None:
        if about.task not in TASKS:
            raise UserError(f"{file} was made by a task called {about.task!r}.", "Give it: load(path, task=MyTask()).")
        task = TASKS[about.task]()
    elif task.name != about.task:
        raise UserError(f"{file} is a model of {about.task}, not of {task.name}.", "Give one of the same task.")
    try:
        config: Any = task.config_class.model_validate(about.config)
    except ValidationError as error:
        keys = ", ".join(".".join(map(str, one["loc"])) for one in error.errors()[:10])
        raise UserError(
            f"{file} was written by unrolled {about.written_by}, "
            f"whose configs this version, {__version__}, does not read: {keys}.",
            "Use that version, or train the model again.",
        ) from None
    with building(file, config):
        assets = task.assets_from_json(about.assets)
        network = task.build(config, assets)
    load_weights(network, file, about)
    network.eval()
    return Model(task, config, assets, network, about.scores, about.versions).to(pick_device(device, "device"))


def configure(
    target: str | Path, overrides: list[str] | None = None, extra: Mapping[str, Any] | None = None
) -> Section:
    """The config for a task's name or a TOML file, with changes."""
    name, path = task_of(target)
    return read_config(TASKS[name].config_class, path, overrides or [], extra or {})


def task_of(target: str | Path) -> tuple[str, Path | None]:
    """The task that a name or a TOML file means."""
    if str(target) in TASKS:
        return str(target), None
    path = Path(target)
    if path.suffix != ".toml":
        if path.is_file():
            raise UserError(f"{path} is not a task.", f"To train on it: unrolled train generate --train {path}")
        raise unknown_name("task", str(target), TASKS)
    try:
        name = tomllib.loads(path.read_text(encoding="utf-8-sig")).get("task")
    except (OSError, ValueError, RecursionError):
        name = "generate"  # read_config says what is wrong with the file
    if name is None:
        raise UserError(
            f"{path} does not say what it is for.", f'Add a first line such as task = "{next(iter(TASKS))}".'
        )
    if not isinstance(name, str) or name not in TASKS:
        raise unknown_name("task", name, TASKS)
    return name, path


def train(
    target: str | Path = "generate",
    *,
    train: str | Path | None = None,
    valid: str | Path | None = None,
    out: str | Path | None = None,
    init: str | Path | None = None,
    set: Mapping[str, Any] | Sequence[str] | None = None,
    task: Task | None = None,
    quiet: bool = False,
) -> Model:
    """Trains a task (or what a TOML file says) and returns the best model; everything is kept in the run folder.

    `train` and `valid` are files, `set` changes keys: {"model.cell": "gru"}. `init` is a model to start from. `out` is
    the run folder, by default a new one under runs/; an existing run is never overwritten. `task` is the task itself,
    where it is not made from its name alone: `Caption(encoder=…)`.
    """
    extra = {f"data.{key}": str(value) for key, value in _files(train=train, valid=valid).items()}
    overrides, changes = changes_of(set)
    config = configure(target, overrides, {**extra, **changes})
    if out is not None:
        check_free(Path(out))  # before all data is read
    return Job(config, init=init, task=task).run(Path(out) if out is not None else None, quiet=quiet)


def _files(**given: Any) -> dict[str, Any]:
    """The files among these, each a path: data in memory is refused with what to do about it."""
    files = {name: value for name, value in given.items() if value is not None}
    for name, value in files.items():
        check_path(value, name)
    return files


def resume(
    folder: str | Path,
    *,
    set: Mapping[str, Any] | Sequence[str] | None = None,
    task: Task | None = None,
    quiet: bool = False,
) -> Model:
    """Goes on with a run that was stopped: it ends as if it never had been.

    `set` changes keys that say where a run ends or stops ({"train.max_steps": 2000}, train.epochs, train.patience,
    train.eval_every), train.lr and clipping, where it computes, and where the same data is now. The run's config.toml
    is changed with them.
    """
    return go_on(Path(folder), *changes_of(set), task=task, quiet=quiet)


def go_on(
    folder: Path, overrides: list[str], extra: Mapping[str, Any], *, task: Task | None = None, quiet: bool = False
) -> Model:
    """`resume`, with changes as the command line has them."""
    check_run(folder)
    with locked(folder):
        old: Any = configure(folder / CONFIG)
        new: Any = configure(folder / CONFIG, overrides, extra)
        lines = check_changes(folder, old, new, [f"data.{name}" for name in FILE_KEYS])
        init = folder / INIT if (folder / INIT).is_file() else None
        return Job(new, init=init, task=task).resume(folder, old if lines else None, lines, quiet=quiet)


def _shaped(config: Any, kept: Mapping[str, Any]) -> Any:
    """The config with the shape of the model that training starts from; another one cannot be asked for."""
    usual, kept_config = type(config)(), apply(config, kept)
    for key in keys(type(config)):
        asked, value = attrgetter(key)(config), attrgetter(key)(kept_config)
        if asked not in (value, attrgetter(key)(usual)):
            raise UserError(f"{key}={asked} was asked for, and the model to start from has {value}.", "Leave it out.")
    return kept_config


class Job:
    """A config made ready to train: data read, vocabulary made, network built."""

    def __init__(self, config: Any, init: str | Path | None = None, task: Task | None = None) -> None:
        settings = config.train
        if task is not None and task.name != config.task:
            raise UserError(f"The config is for {config.task}, the task is {task.name}.", "Use those of one task.")
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        torch.use_deterministic_algorithms(settings.deterministic)
        self.device = pick_device(settings.device)
        self.task = task or TASKS[config.task]()
        self.init = find_file(init) if init is not None else None
        start = load(self.init, task=self.task) if self.init is not None else None
        self.config = config if start is None else _shaped(config, self.task.architecture(start.config))
        self.data: Data = self.task.read(self.config)
        torch.manual_seed(settings.seed)
        self.assets = self.task.make_assets(self.config, self.data, init=start.assets if start else None)
        self.goal = self.task.goal(self.config, self.assets)
        network = self.task.build(self.config, self.assets)
        if start is not None:
            self.task.transfer(start, network, self.assets)
        else:
            self.task.initialize(network, self.config, self.assets, self.data)
        self.model = Model(self.task, self.config, self.assets, network.to(self.device), {}, current_versions())

    def trainer(self) -> Trainer:
        task, model, config = self.task, self.model, self.config
        batches = task.batches(config, self.assets, self.data.train, training=True)
        valid = task.batches(config, self.assets, self.data.valid, training=False)

        def loss(batch: Batch, state: Any) -> Any:
            prepared = task.prepare(model.network, config, batch, state, trainer.done)
            return task.loss(model.network, prepared, state)

        trainer = Trainer(
            model.network,
            loss,
            batches,
            config.train,
            goal=self.goal,
            evaluate=lambda: task.evaluate(model, valid),
            device=self.device,
            stateful=task.stateful(config),
            window=task.window(config),
            judge_start=task.judge_start(config),
            usual_tokens=task.usual_tokens(config),
        )
        return trainer

    def run(self, out: Path | None, *, quiet: bool = False) -> Model:
        trainer = self.trainer()
        folder = new_folder(out, self.task.name)
        with locked(folder):
            check_free(folder)  # another process may have been faster
            clear(folder, STARTED - {LOCK})
            if self.init is not None:  # to begin again from, should the run be killed before its first checkpoint
                write_atomically(folder / INIT, self.init.read_bytes())
            self._write_config(folder)
            return self._drive(self._run(folder, trainer), quiet, [])

    def resume(
        self, folder: Path, old: Any | None = None, changes: Sequence[str] = (), *, quiet: bool = False
    ) -> Model:
        """Goes on with a run, whose config was `old` where it is changed."""
        trainer = self.trainer()
        run = self._run(folder, trainer)
        before = None if old is None else trainer.total_of(old.train)
        notes = run.resume(before)
        if before == trainer.total_steps and any(line.startswith(END) for line in changes):
            notes.append(
                f"It still ends after {trainer.total_steps} updates: {' and '.join(END)} both hold, "
                "and the earlier end counts."
            )
        if changes:
            self._write_config(folder, f"Changed at step {trainer.progress.step}: {'; '.join(changes)}.")
        if before not in (None, trainer.total_steps) and trainer.progress.step:
            run.checkpoint()  # patience may count anew, also for a run that is killed before its next checkpoint
        return self._drive(run, quiet, [*changes, *notes])

    def _run(self, folder: Path, trainer: Trainer) -> Run:
        assets = json.dumps(self.task.assets_to_json(self.assets), sort_keys=True) + self.data.contents
        files = [str(path) for name in FILE_KEYS if (path := getattr(self.config.data, name, None)) is not None]
        origin = Origin(self.task.name, self.data.fingerprint, hash_of(assets.encode()), files)
        return Run(folder, trainer, self.model.save, origin, lambda: self.task.samples(self.model))

    def _write_config(self, folder: Path, change: str = "") -> None:
        """Writes config.toml; changes on the way are told at its top, each on a line."""
        path, lines = folder / CONFIG, list[str]()
        if path.is_file():
            top = path.read_text(encoding="utf-8").split("\n\n")[0].splitlines()
            lines = [line.removeprefix("# ") for line in top if line.startswith("# ")]
        header = "\n".join([*lines, change] if change else lines)
        write_atomically(path, write_toml(_with_absolute_paths(self.config), comments=False, header=header))

    def _drive(self, run: Run, quiet: bool, notes: list[str]) -> Model:
        trainer, folder, doubts = run.trainer, run.folder, Doubts(self.goal)
        with (
            Report(
                self.goal, trainer.total_steps, unit=self.task.unit, start_step=trainer.progress.step, quiet=quiet
            ) as report,
            interruptible() as stop,
        ):
            for note in notes:
                report.say(note)
            report.say(self._introduction(folder, trainer))
            if trainer.progress.step >= trainer.total_steps:
                longer = f"unrolled train --resume {folder} --set train.max_steps={2 * trainer.total_steps}"
                report.say(f"The run had come to its end already. To make it longer: {longer}")
            try:
                for info in self._steps(run):
                    report.step(info, trainer.progress)
                    doubts.look(info)
                    if info.scores is not None:
                        for sample in run.samples:
                            report.say(_indented(sample))
                    if stop.signal is not None and not trainer.progress.finished:
                        run.checkpoint()
                        report.say(f"Stopped at step {info.step}. Go on with: unrolled train --resume {folder}")
                        self._draw(folder)
                        stop.leave()
            except DiskError:
                raise
            except UserError:  # how it became non-finite is worth seeing
                self._draw(folder)
                raise
            self._draw(folder)
            if trainer.stalled and trainer.progress.step < trainer.total_steps:
                report.say(
                    f"{stopped_early(self.goal, trainer.progress, run.scores)} "
                    f"To train on: unrolled train --resume {folder} --set train.patience=0"
                )
        best = load(
            folder / BEST if (folder / BEST).exists() else folder / LAST, task=self.task, device=str(self.device)
        )
        report.say(
            f"Done: best {self.goal.metric} {trainer.progress.best_score:.4f}, step {trainer.progress.best_step}. "
            f"Use it: unrolled run {folder}"
        )
        for remark in self.task.remarks(best):
            report.say(remark)
        doubts.end(trainer.progress.best_score)
        return best

    def _draw(self, folder: Path) -> None:
        """The curves as far as the run came, however it ended."""
        with disk_errors(folder / CURVES, then=f"draw it with: unrolled train --resume {folder}"):
            picture = curves(folder, self.goal.metric)
            if picture is not None:
                write_atomically(folder / CURVES, picture)

    def _steps(self, run: Run) -> Iterator[StepInfo]:
        try:
            yield from run.steps()
        except (RuntimeError, MemoryError) as error:
            if not _is_out_of_memory(error):
                raise
            raise UserError(
                f"Out of memory with train.batch_size={self.config.train.batch_size}.",
                f"Use train.batch_size={self._fitting_batch_size()}"
                + (", or a shorter train.k1." if hasattr(self.config.train, "k1") else "."),
            ) from None

    def _fitting_batch_size(self) -> int:
        """The largest half, quarter, … of the batch that runs forward and backward."""
        size: int = self.config.train.batch_size // 2
        while size > 1:
            smaller = Job(apply(self.config, {"train.batch_size": size}), task=self.task)
            try:
                smaller.trainer().gradients()
                return size
            except (RuntimeError, MemoryError) as error:
                if not _is_out_of_memory(error):
                    raise
                size //= 2
        return 1

    def _introduction(self, folder: Path, trainer: Trainer) -> str:
        text = (
            f"{self.task.name} on {self.data.source}\n"
            + "".join(f"{name:<8}  {text}\n" for name, text in self.task.roles(self.assets).items())
            + f"{self.model.num_parameters:,} parameters, {_in_an_epoch(trainer)}, "
            f"{trainer.total_steps} updates, {self.device}, run folder {folder}\n"
            "Ctrl-C stops and saves"
        )
        if type(self.task).samples is not Task.samples:
            text += "; lines marked │ are samples of what the model does"
        slow = too_slow_a_rise(trainer.settings, trainer.total_steps)
        return "\n".join(
            [text, *self.task.warnings(self.config, trainer.batches), *([f"Note: {slow}"] if slow else [])]
        )


def compare(
    models: Sequence[str | Path],
    data: Any,
    picture: str | Path | None = None,
    *,
    device: str = "cpu",
    set: Mapping[str, Any] | Sequence[str] | None = None,
) -> dict[str, dict[str, Any]]:
    """Scores of several models on the same data, and a picture of them by the length of the source."""
    place = check_picture(picture) if picture is not None else None
    loaded = {str(path): load(path, device=device) for path in models}
    tasks = {model.task.name for model in loaded.values()}
    if len(tasks) > 1:
        raise UserError(f"The models are of {' and '.join(sorted(tasks))}.", "Give those of one task.")
    scores = {name: model.evaluate(data, set=set) for name, model in loaded.items()}
    if place is not None:
        tables = {name: found.get("by_length") for name, found in scores.items()}
        if not all(tables.values()):
            raise UserError("There is no picture of these scores.", "--picture is for models of translate.")
        length_figure({name: table for name, table in tables.items() if table}).savefig(place, dpi=120)
    return scores


@dataclass(frozen=True)
class Check:
    """What a dry run found."""

    facts: dict[str, Any]

    def __str__(self) -> str:
        width = max(map(len, self.facts))
        return "\n".join(f"{name:<{width}}  {value}" for name, value in self.facts.items())


def check(target: str | Path, overrides: list[str] | None = None, extra: Mapping[str, Any] | None = None) -> Check:
    """A dry run: the config's errors, facts about the data, one update, and an estimate of memory and time."""
    import resource
    import time

    config = configure(target, overrides, extra)
    job = Job(config)
    trainer = job.trainer()
    trainer.update()
    began = time.perf_counter()
    info = trainer.update()
    seconds = time.perf_counter() - began
    slow = too_slow_a_rise(trainer.settings, trainer.total_steps)
    if job.device.type == "cuda":
        memory = torch.cuda.max_memory_allocated(job.device)
    else:
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Check(
        {
            "task": job.task.name,
            "data": job.data.source,
            **job.task.statistics(config, job.data, job.assets),
            "parameters": f"{job.model.num_parameters:,}",
            "loss of the second update": f"{info.loss:.4f}",
            "updates": f"{trainer.total_steps} ({_in_an_epoch(trainer)})",
            **({"learning rate": slow} if slow else {}),
            "time, estimated": f"{seconds * trainer.total_steps / 60:.1f} minutes on {job.device}, evaluations apart",
            "memory": f"{memory / 2**30:.2f} GiB at the most so far",
        }
    )


def _in_an_epoch(trainer: Trainer) -> str:
    number = len(trainer.batches)
    return f"{number} {'batch' if number == 1 else 'batches'} an epoch"


def _is_out_of_memory(error: Exception) -> bool:
    """torch's CPU allocator has no error class of its own."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "DefaultCPUAllocator" in str(error)


def pick_device(name: str, key: str = "train.device") -> torch.device:
    """auto is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        hint = "Did you mean 'cuda'? " if name.startswith("gpu") else ""
        raise UserError(f"Unknown {key} {name!r}.", f"{hint}Choices: auto, cpu, cuda.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"{key}={name}, but torch finds no GPU here.", f"Use {key}=cpu.")
    return device


def _with_absolute_paths(config: Any) -> Any:
    paths = {f"data.{name}": getattr(config.data, name, None) for name in FILE_KEYS}
    return apply(config, {key: str(Path(path).absolute()) for key, path in paths.items() if path is not None})


def _indented(text: str) -> str:
    """The first lines of a sample, marked as such."""
    lines = text.splitlines()[:4]
    return "\n".join(f"    │ {line[:110]}" for line in lines)
