"""Callbacks: code of the user's that a run calls at its start, after updates and evaluations, and at its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from torch import nn

from unrolled.training.loop import Progress, StepInfo, Trainer
from unrolled.training.traits import Goal

Outcome = Literal["running", "finished", "stopped", "interrupted", "failed"]


@dataclass
class WatchedRun:
    """A run as its callbacks see it."""

    folder: Path
    task: str
    config: Mapping[str, Any]  # dotted keys and their values
    data: str  # the data in words
    trainer: Trainer = field(repr=False)
    resumed: bool = False
    outcome: Outcome = "running"
    stop_reason: str | None = None

    def stop(self, reason: str = "") -> None:
        """End the run: at once after an evaluation, else after the next update and its evaluation. It can resume."""
        self.stop_reason, self.trainer.ending = reason, True

    @property
    def network(self) -> nn.Module:
        """The network in training; change nothing in it."""
        return self.trainer.network

    @property
    def goal(self) -> Goal:
        """The score that decides which model is best."""
        return self.trainer.goal

    @property
    def progress(self) -> Progress:
        """The numbers of the run so far: step, epoch, tokens, best_score, best_step."""
        return self.trainer.progress

    @property
    def total_steps(self) -> int:
        """The updates of the whole run."""
        return self.trainer.total_steps


class Callback:
    """Watches a run: override the methods you need. `run.stop("reason")` ends it early."""

    def start(self, run: WatchedRun) -> None:
        """Called before the first update, of a resumed run too."""

    def update(self, run: WatchedRun, info: StepInfo) -> None:
        """Called after each update, in order; on a GPU a few updates later."""

    def evaluation(self, run: WatchedRun, info: StepInfo) -> None:
        """Called after each evaluation, once its model and checkpoint are saved: info.scores, info.is_best."""

    def end(self, run: WatchedRun) -> None:
        """Called once, however the run ends: run.outcome is finished, stopped, interrupted or failed."""


class Watchers:
    """The callbacks of one run."""

    def __init__(self, callbacks: Sequence[Callback], run: WatchedRun) -> None:
        self.callbacks, self.run = callbacks, run

    @contextmanager
    def watching(self) -> Iterator[None]:
        """A block that is the run: `start` before it, `end` after it in the reverse order."""
        started: list[Callback] = []
        try:
            for callback in self.callbacks:
                callback.start(self.run)
                started.append(callback)
            yield
            self.run.outcome = "finished" if self.run.stop_reason is None else "stopped"
        except (KeyboardInterrupt, SystemExit):
            self.run.outcome = "interrupted"
            raise
        except BaseException:
            self.run.outcome = "failed"
            raise
        finally:
            for callback in reversed(started):
                callback.end(self.run)

    def see(self, info: StepInfo) -> None:
        """Show an update, and its evaluation if there was one, to every callback."""
        for callback in self.callbacks:
            if info.norms is not None:  # None before the first update
                callback.update(self.run, info)
            if info.scores is not None:
                callback.evaluation(self.run, info)
