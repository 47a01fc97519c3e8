"""One trial: a training run in this process, reported to the sweep after every evaluation."""

from __future__ import annotations

import gc
import os
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from unrolled.config import apply
from unrolled.errors import Note, UserError
from unrolled.jobs import TrainingJob, find_target
from unrolled.see.views.runs import evaluations
from unrolled.sweeps.plan import SweepPlan
from unrolled.sweeps.rows import State
from unrolled.sweeps.trials import AskedTrial
from unrolled.tasks import TASKS, Data, Task
from unrolled.training import Goal, StepInfo
from unrolled.training.checkpoint import DiskError
from unrolled.training.folder import CONFIG, INIT, locked
from unrolled.training.watching import Callback, WatchedRun

KEPT_DATA = 2  # data sets that a process keeps
COLLECT = 10.0  # seconds of trials after which their memory is collected


class SharedReader:
    """Reads data once for all trials with the same section `data`: built-in tasks read nothing else of a config."""

    def __init__(self, task: Task) -> None:
        self.task, self.shares = task, type(task) is TASKS.get(task.name)
        self.kept: dict[str, Data] = {}

    def __call__(self, config: Any) -> Data:
        if not self.shares:
            return self.task.read(config)
        key = config.data.model_dump_json()
        if key not in self.kept:
            while len(self.kept) >= KEPT_DATA:
                self.kept.pop(next(iter(self.kept)))
            self.kept[key] = self.task.read(config)
        return self.kept[key]


class TimeIsUp(Exception):
    """Ends a trial between two updates; it goes on from its last evaluation when the sweep does."""


@dataclass(frozen=True)
class SweepBounds:
    """The end of a process's trials: a time, and the process that started it."""

    deadline: float | None = None  # of time.time()
    parent: int | None = None

    @property
    def reached(self) -> str:
        """The bound that is reached, in words; empty before."""
        if self.deadline is not None and time.time() >= self.deadline:
            return "the time was up"
        return "its sweep was stopped" if self.parent not in (None, os.getppid()) else ""


class Reporter(Callback):
    """Reports a run's scores to the sweep, and ends it where they are poor or the time is up."""

    def __init__(self, asked: AskedTrial, bounds: SweepBounds) -> None:
        self.trial, self.bounds = asked.handle, bounds
        self.pruned, self.curve = False, list[tuple[int, float]]()
        self.best: float | None = None
        self.steps, self.epochs = 0, 0

    def start(self, run: WatchedRun) -> None:
        """Report the evaluations of a run that goes on."""
        rows = evaluations(run.folder) if run.resumed else []
        for row in rows:
            self._report(row["step"], row[run.goal.metric])

    def update(self, run: WatchedRun, info: StepInfo) -> None:
        if self.bounds.reached:
            raise TimeIsUp

    def evaluation(self, run: WatchedRun, info: StepInfo) -> None:
        assert info.scores is not None
        self._report(info.step, info.scores[run.goal.metric])
        if info.step < run.total_steps and self.trial.should_prune():
            self.pruned = True
            run.stop("its scores are below those of other trials")

    def _report(self, step: int, score: float) -> None:
        """The number of an evaluation is what trials are compared at: their batches may differ in size."""
        self.curve.append((step, float(score)))
        self.trial.report(float(score), len(self.curve))

    def end(self, run: WatchedRun) -> None:
        progress = run.progress
        self.best, self.steps, self.epochs = progress.best_score, progress.step, progress.epoch + 1


@dataclass(frozen=True)
class TrialOutcome:
    """The end of a trial."""

    state: State
    score: float | None
    run: Mapping[str, Any]
    reason: str = ""
    interrupted: BaseException | None = None  # by Ctrl-C and the like


@dataclass
class TrialRunner:
    """Runs the trials of one process."""

    plan: SweepPlan
    goal: Goal
    read: Callable[[Any], Data]
    folder: Path
    threads: int
    bounds: SweepBounds
    collected: float = field(default_factory=time.monotonic)  # the time of the last garbage collection

    def run(self, asked: AskedTrial) -> TrialOutcome:
        """Train to the end, or to where the trial is pruned, fails or is stopped."""
        begun, reporter = time.monotonic(), Reporter(asked, self.bounds)

        def outcome(state: State, reason: str = "", interrupted: BaseException | None = None) -> TrialOutcome:
            run = {"seconds": round(time.monotonic() - begun, 3), "steps": reporter.steps, "epochs": reporter.epochs}
            return TrialOutcome(state, reporter.best, {**run, "curve": reporter.curve}, reason, interrupted)

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", Note)  # about data and models: said for one run, not for each
                self._train(asked, reporter)
        except TimeIsUp:
            return outcome("stopped", self.bounds.reached)
        except (KeyboardInterrupt, SystemExit) as error:
            return outcome("stopped", "stopped by the user", error)
        except DiskError:
            raise
        except UserError as error:
            return outcome("failed", str(error))
        except (RuntimeError, ValueError, ArithmeticError, MemoryError) as error:
            return outcome("failed", f"{type(error).__name__}: {str(error)[:500]}")
        finally:
            self._release()
        if reporter.pruned:
            return outcome("pruned")
        return outcome("complete") if reporter.best is not None else outcome("failed", "it was never evaluated")

    def _train(self, asked: AskedTrial, reporter: Reporter) -> None:
        folder = trial_folder(self.folder, asked.number)
        resumed = self._taken_over(asked, folder)
        if resumed:
            config: Any = find_target(folder / CONFIG, self.plan.task).configure()
        else:
            config = self.plan.config(asked.params)
            if config.train.threads is None:  # the number of threads decides the last bits
                config = apply(config, {"train.threads": self.threads})
        init = self.plan.init if not resumed else folder / INIT if (folder / INIT).is_file() else None
        with locked(folder) if resumed else nullcontext():
            job = TrainingJob(config, init, self.plan.task, checked=resumed, read=self.read, draw=False)
            if job.goal != self.goal:
                raise UserError(f"It is judged by {job.goal.metric}, other trials by {self.goal.metric}.")
            if resumed:
                job.resume(folder, quiet=True, callbacks=[reporter])
            else:
                job.run(folder, quiet=True, callbacks=[reporter])

    def _taken_over(self, asked: AskedTrial, folder: Path) -> bool:
        """True if the trial goes on with the run of another, whose folder becomes its own."""
        if asked.before is None:
            return False
        before = trial_folder(self.folder, asked.before)
        if before.exists() and not folder.exists():
            before.rename(folder)
        return (folder / CONFIG).is_file()

    def _release(self) -> None:
        """Free the memory of a run, whose objects know one another; a collection takes as long as a tiny trial."""
        if torch.cuda.is_available() or time.monotonic() - self.collected > COLLECT:
            gc.collect()
            self.collected = time.monotonic()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def trial_folder(folder: Path, number: int) -> Path:
    """The run folder of a trial."""
    return folder / "trials" / f"{number:04d}"
