"""A run that is under way: its updates made and shown, its end said, its best model read."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING

import torch

from unrolled.errors import UserError
from unrolled.jobs.engine_notes import engine_notes
from unrolled.jobs.load import load_model
from unrolled.model import Model
from unrolled.see.figures.curves import curves
from unrolled.training import Run, Trainer
from unrolled.training.checkpoint import DiskError, disk_errors, write_atomically
from unrolled.training.devices import is_out_of_memory, largest_fitting_batch
from unrolled.training.folder import BEST, CURVES, LAST
from unrolled.training.interrupts import Stop, interruptible
from unrolled.training.loop import StepInfo
from unrolled.training.report import Report, stopped_early
from unrolled.training.schedule import too_slow_a_rise
from unrolled.training.score_checks import ScoreChecks
from unrolled.training.watching import Watchers

if TYPE_CHECKING:
    from unrolled.jobs.train import TrainingJob


class Drive:
    """Drives the run of a job from where it is to its end. The first of several processes writes and speaks."""

    def __init__(self, job: TrainingJob, run: Run, watchers: Watchers, *, quiet: bool) -> None:
        self.job, self.run, self.watchers = job, run, watchers
        self.trainer, self.folder, self.is_first = run.trainer, run.folder, run.ranks.is_first
        self.doubts = ScoreChecks(job.goal)
        start = self.trainer.progress.step
        quiet = quiet or not self.is_first
        self.report = Report(job.goal, self.trainer.total_steps, unit=job.task.unit, start_step=start, quiet=quiet)

    def to_the_end(self, notes: list[str]) -> Model:
        """Make all updates, after saying the notes; returns the best model."""
        progress, report = self.trainer.progress, self.report
        with report, interruptible() as stop:
            self.trainer.watch(stop)
            for note in notes:
                report.say(note)
            report.say(self._introduction())
            if progress.step >= self.trainer.total_steps > 0:
                report.say(f"The run is already finished. To make it longer: {self._longer()}")
            try:
                with self.watchers.watching():
                    self._follow(stop)
            except DiskError:
                raise
            except UserError:  # shows how it became non-finite
                self._draw()
                raise
            self._draw()
            self._say_why_it_ended()
        best = self._best()
        report.say(
            f"Done: best {self.job.goal.metric} {progress.best_score:.4f}, step {progress.best_step}. "
            f"Use it: unrolled run {self.folder}"
        )
        if self.is_first:
            for remark in self.job.task.description.remarks(best):
                report.say(remark)
            self.doubts.end(progress.best_score)
        return best

    def _follow(self, stop: Stop) -> None:
        """Make all updates, and show each to who watches."""
        trainer, report = self.trainer, self.report
        said = "train.graph=off"  # which the user asked for
        for info in self._steps():
            report.step(info, trainer.progress)
            if (eager := trainer.eager_reason) not in (None, said):
                said = eager
                report.say(f"Note: updates run without a CUDA graph, more slowly: {eager}.")
            self.doubts.look(info)
            for sample in info.samples:
                report.say(_indented(sample))
            self.watchers.see(info)
            asked = info.stop if trainer.together is not None else stop.signal is not None
            if asked and not trainer.progress.finished:
                self.run.checkpoint()
                report.say(f"Stopped at step {info.step}. Resume with: unrolled train --resume {self.folder}")
                self._draw()
                stop.leave()

    def _steps(self) -> Iterator[StepInfo]:
        try:
            yield from self.run.steps()
            return
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        raise self._out_of_memory()  # here the error is gone, and with it the memory of its frames

    def _out_of_memory(self) -> UserError:
        """The error for a run that needs more memory: batches that fit, and how to go on."""
        job, settings = self.job, self.job.config.train
        key = "train.batch_tokens" if getattr(settings, "batch_tokens", None) else "train.batch_size"
        size: int = attrgetter(key)(job.config)
        self.trainer.release()
        fits = job.ranks.alone
        fitting = largest_fitting_batch(size, lambda size: job.try_batch(key, size)) if fits else max(1, size // 2)
        smaller = f"{key}={fitting}"
        fix = f"Use {smaller}" + (", or a shorter train.k1." if hasattr(settings, "k1") else ".")
        if self.run.saved_step is not None:
            fix += (
                f" Step {self.run.saved_step} is saved. With more free memory: unrolled train --resume {self.folder}. "
                "With smaller batches, from its model: "
                f"unrolled train {job.task.name} --init {self.folder} --set {smaller}"
            )
        return UserError(f"Out of memory with {key}={size}.", fix)

    def _introduction(self) -> str:
        job, trainer = self.job, self.trainer
        text = (
            f"{job.task.name} on {job.data.source}\n"
            + "".join(f"{name:<8}  {text}\n" for name, text in job.task.description.roles(job.assets).items())
            + f"{job.model.num_parameters:,} parameters, {_updates(trainer)}, {_where(job)}, {trainer.precision}, "
            f"run folder {self.folder}\n"
            "Ctrl-C stops and saves"
        )
        if job.traits.samples:
            text += "; lines marked │ are samples of what the model does"
        slow = None if job.traits.fitted else too_slow_a_rise(trainer.settings, trainer.total_steps)
        return "\n".join(
            [
                *[text, *job.task.description.warnings(job.config, trainer.batches)],
                *([f"Start: {job.init}\n{job.taken}"] if job.taken is not None else []),
                *(f"Note: {note}" for note in engine_notes(job.model.network)),
                *([f"Note: {slow}"] if slow else []),
            ]
        )

    def _say_why_it_ended(self) -> None:
        """Say so if the run ended before its last update."""
        trainer, progress, asked = self.trainer, self.trainer.progress, self.watchers.run.stop_reason
        if trainer.stalled and progress.step < trainer.total_steps:
            self.report.say(
                f"{stopped_early(self.job.goal, progress, self.run.scores)} "
                f"To train on: unrolled train --resume {self.folder} --set train.patience=0"
            )
        elif asked is not None and not progress.finished:
            self.report.say(
                f"Stopped by a callback at step {progress.step}{f': {asked}' if asked else ''}. "
                f"To train on: unrolled train --resume {self.folder}"
            )

    def _longer(self) -> str:
        return f"unrolled train --resume {self.folder} --set train.max_steps={2 * self.trainer.total_steps}"

    def _best(self) -> Model:
        """The best model of the run, which the first of several processes reads."""
        job = self.job
        if self.is_first:
            path = self.folder / BEST if (self.folder / BEST).exists() else self.folder / LAST
            job.model = load_model(path, task=job.task, device=str(job.device))
        with torch.no_grad():
            job.ranks.copy_from_first(list(job.model.network.state_dict().values()))
        return job.model

    def _draw(self) -> None:
        """Draw the learning curves so far."""
        if not (self.is_first and self.job.draw):
            return
        with disk_errors(self.folder / CURVES, then=f"draw it with: unrolled train --resume {self.folder}"):
            picture = curves(self.folder, self.job.goal.metric)
            if picture is not None:
                write_atomically(self.folder / CURVES, picture)


def _where(job: TrainingJob) -> str:
    """The devices that compute, in words."""
    kind = job.device.type if job.ranks.world > 1 else str(job.device)
    return kind if job.ranks.alone else f"{job.ranks.world} processes, {kind}"


def _updates(trainer: Trainer) -> str:
    """The length of a run in words."""
    if trainer.traits.fitted:
        return "fitted without updates"
    return f"{batches_per_epoch(trainer)}, {trainer.total_steps} updates"


def batches_per_epoch(trainer: Trainer) -> str:
    number = len(trainer.batches)
    return f"{number} {'batch' if number == 1 else 'batches'} an epoch"


def _indented(text: str) -> str:
    """The first lines of a sample, indented and marked."""
    lines = text.splitlines()[:4]
    return "\n".join(f"    │ {line[:110]}" for line in lines)
