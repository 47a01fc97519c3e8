"""A sweep: many trials of one plan in one folder, and its result."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from unrolled.config import read_config, read_toml
from unrolled.errors import UserError
from unrolled.hub import is_address
from unrolled.jobs import Target, TrainingJob, load_model
from unrolled.model import Model
from unrolled.own_code import text_of
from unrolled.sweeps.outputs import BEST_CONFIG, PAGE, SWEEP
from unrolled.sweeps.plan import SweepPlan, differences, make_plan
from unrolled.sweeps.processes import Processes
from unrolled.sweeps.progress import SweepProgress
from unrolled.sweeps.rows import TrialRow, as_csv, best_of
from unrolled.sweeps.settings import SweepSettings
from unrolled.sweeps.trial import SharedReader, SweepBounds
from unrolled.sweeps.trials import file_lock
from unrolled.sweeps.worker import TrialLoop, check_hope, loop_of
from unrolled.tasks import TASKS, Task
from unrolled.training import Goal, hash_of
from unrolled.training.checkpoint import write_atomically
from unrolled.training.folder import BEST
from unrolled.training.place import RankPlace

PROBES = 8  # combinations tried until a network can be built


@dataclass(frozen=True, repr=False)
class Sweep:
    """The result of a sweep."""

    folder: Path
    goal: Goal
    rows: Sequence[TrialRow]
    keys: Sequence[str]  # that were searched
    importance: Mapping[str, float]  # the share of each key in the differences between trials; {}: too few trials
    task: Task = field(repr=False)

    def __repr__(self) -> str:
        best = self.best_trial
        return (
            f"Sweep({self.folder}, {len(self.trials)} trials, best {self.goal.metric} {best.score:.4g}, {best.params})"
        )

    @property
    def trials(self) -> list[dict[str, Any]]:
        """A dictionary for each trial: number, state, score, seconds, steps, epochs, parameters, note."""
        return [row.cells() for row in self.rows]

    @property
    def best_trial(self) -> TrialRow:
        best = best_of(self.rows, higher_is_better=self.goal.higher_is_better)
        if best is None:
            raise UserError(f"No trial of {self.folder} is complete yet.", "Let the sweep go on.")
        return best

    @property
    def best(self) -> dict[str, Any]:
        """The values of the best trial, as `set` of `unrolled.train` takes them."""
        return dict(self.best_trial.params)

    @property
    def best_score(self) -> float:
        assert self.best_trial.score is not None
        return self.best_trial.score

    @property
    def best_config(self) -> Path:
        """The config file that trains the best model again, with the same bits."""
        return self.folder / BEST_CONFIG

    @property
    def best_model(self) -> Model:
        return load_model(self.folder / BEST, task=self.task)

    def to_csv(self, path: str | Path) -> None:
        """Write the table of trials."""
        write_atomically(Path(path), as_csv(self.rows, self.keys))


def run_sweep(
    target: Target,
    overrides: Sequence[str],
    extra: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    out: Path | None = None,
    init: str | None = None,
    quiet: bool = False,
) -> Sweep:
    """Run the trials of a sweep, or go on with it; the same folder is the same sweep.

    `settings` are those of `SweepSettings`.
    """
    if RankPlace.of(os.environ).world > 1:
        raise UserError("A sweep starts its own processes.", "Start it without torchrun, with --workers.")
    if init is not None and not is_address(init):
        init = str(Path(init).absolute())
    plan, stored = make_plan(target, overrides, extra, init)
    chosen = read_config(SweepSettings, None, extra={**stored, **settings})
    deadline = None if chosen.seconds is None else time.time() + chosen.seconds
    text = plan.as_toml(
        chosen,
        f"A sweep. To go on with it: unrolled sweep {SWEEP} --out FOLDER, where FOLDER is the folder of this file.",
    )
    folder = out or Path("runs", f"sweep-{plan.task.name}-{hash_of(text.encode())[:8]}")
    _check_folder(folder, text)
    own = text_of(type(plan.task))  # a task of the user's, for other processes
    if chosen.workers > 1 and own is None and type(plan.task) is not TASKS.get(plan.task.name):
        raise UserError("Several processes cannot share this task.", "Name it as FILE.py:CLASS, or use workers=1.")
    reader = SharedReader(plan.task)
    probe = _probe(plan, reader)
    _begin(folder, text)
    bounds, threads = SweepBounds(deadline), max(1, torch.get_num_threads() // chosen.workers)
    loop = loop_of(folder, plan, chosen, probe.goal, reader, threads, bounds)
    if plan.reads_the_same:
        loop.trials.agree({"data": hash_of(probe.data.fingerprint.encode(), probe.data.contents.encode())})
    progress = SweepProgress(probe.goal, loop.trials.limit, deadline, quiet=quiet)
    progress.say(_introduction(plan, probe, folder, loop.trials.limit, chosen))
    job = {
        "folder": str(folder.absolute()),
        "task": own,
        "settings": chosen.model_dump(),
        "goal": asdict(probe.goal),
        "deadline": deadline,
        "parent": os.getpid(),
        "threads": threads,
    }
    del probe
    return _finished(loop, progress, job if chosen.workers > 1 else None, chosen.workers)


def _finished(loop: TrialLoop, progress: SweepProgress, job: Mapping[str, Any] | None, workers: int) -> Sweep:
    """Run trials in this process, or in others, to the end; then write the pictures."""
    trials, plan, folder = loop.trials, loop.runner.plan, loop.trials.folder
    progress.begin(trials.rows())
    try:
        if job is None:
            loop.run(progress.show)
        else:
            Processes(workers, job, torch.cuda.device_count()).wait(lambda: progress.show(trials.rows()))
    except (KeyboardInterrupt, SystemExit):
        loop.outputs.update(trials.rows(), keep=loop.keep)
        progress.say("Stopped. The same command goes on.")
        raise
    finally:
        if any(row.state == "complete" for row in trials.rows()):
            loop.outputs.draw(trials)
    rows = trials.rows()
    loop.outputs.update(rows, keep=loop.keep)
    check_hope(rows, every=True)
    result = Sweep(folder, trials.goal, rows, list(plan.spaces), trials.importance(), plan.task)
    progress.say(_conclusion(result))
    return result


def _check_folder(folder: Path, text: str) -> None:
    """An error for a folder that holds anything but this sweep."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UserError(f"{folder} is a file.", "Choose another --out.")
    there = folder / SWEEP
    if there.is_file():
        other = differences(read_toml(there).data, text)
        if other:
            more = f" and {len(other) - 4} more" if len(other) > 4 else ""
            raise UserError(
                f"{folder} holds another sweep: {'; '.join(other[:4])}{more}.",
                "Choose another --out, or give it the same command.",
            )
    elif any(folder.iterdir()):
        raise UserError(f"{folder} exists and is not the folder of a sweep.", "Choose another --out.")


def _begin(folder: Path, text: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be created: {error.strerror}.", "Choose another --out.") from None
    with file_lock(folder / SWEEP):
        if not (folder / SWEEP).exists():
            write_atomically(folder / SWEEP, text)


def _probe(plan: SweepPlan, reader: SharedReader) -> TrainingJob:
    """A job of the sweep: an error in the data, or in every config, ends the sweep before it begins."""
    first: UserError | None = None
    for turn in range(PROBES):
        chosen = plan.draw(lambda path, space, turn=turn: space.ends[turn % len(space.ends)])  # type: ignore[misc]
        try:
            return TrainingJob(plan.config(chosen), plan.init, plan.task, read=reader, draw=False)
        except UserError as error:
            first = first or error
    assert first is not None
    raise first


def _introduction(plan: SweepPlan, job: TrainingJob, folder: Path, limit: int | None, settings: SweepSettings) -> str:
    many = f"{settings.workers} processes, " if settings.workers > 1 else ""
    end = " and ".join(
        [*([f"{limit} trials"] if limit else []), *([f"at most {settings.time}"] if settings.time else [])]
    )
    rows = [f"  {path} = {space}" for path, space in plan.spaces.items()]
    return "\n".join(
        [
            f"Sweep of {plan.task.name} on {job.data.source}: {end}, {many}{settings.sampler}, "
            f"pruner {settings.pruner}, folder {folder}",
            *rows,
            "Ctrl-C stops and saves; the same command goes on",
        ]
    )


def _conclusion(sweep: Sweep) -> str:
    states = [row.state for row in sweep.rows if row.counts]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    return (
        f"Done: {len(states)} trials ({counts}). Best {sweep.goal.metric} {sweep.best_score:.4f}, trial "
        f"{sweep.best_trial.number}. Use it: unrolled run {sweep.folder}\n"
        f"Train it again: unrolled train {sweep.best_config}. All trials: {sweep.folder / PAGE}"
    )
