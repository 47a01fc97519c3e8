"""Trackers: callbacks that write a run's numbers to another program."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from unrolled.errors import UserError, note
from unrolled.training.loop import StepInfo
from unrolled.training.watching.callback import Callback, Outcome, WatchedRun

POINTS = 500  # means of updates in a whole run, so that a tracker costs a fast run little


class Tracker(Callback):
    """Writes means of updates, a few hundred in a run, and all scores, to another program.

    An error of that program ends the tracking with a note, and never the training.
    """

    name: ClassVar[str]  # in train.log
    package: ClassVar[str]  # that it imports

    def __init__(self) -> None:
        if find_spec(self.package) is None:
            raise UserError(
                f"train.log={self.name} needs the package {self.package}, which is not installed.",
                f"Install it: pip install {self.package}, or all trackers: pip install 'unrolled[log]'",
            )
        self.broken = False
        self._mean = _Mean()

    @abstractmethod
    def open(self, run: WatchedRun) -> None:
        """Begin; a resumed run goes on in the same place."""

    @abstractmethod
    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Write numbers of one step."""

    def write_samples(self, step: int, samples: str) -> None:
        """Write what the model did in an evaluation."""

    @abstractmethod
    def close(self, outcome: Outcome, best: Mapping[str, float]) -> None:
        """Write all that is pending, and the best score."""

    def start(self, run: WatchedRun) -> None:
        """Open the other program's log."""
        self.every = max(1, run.total_steps // POINTS)
        self._safely(lambda: self.open(run))
        self._mean = _Mean()

    def update(self, run: WatchedRun, info: StepInfo) -> None:
        """Add an update to the mean of several."""
        self._mean.add(info)
        if info.step % self.every == 0:
            values, self._mean = self._mean.values(info), _Mean()
            self._safely(lambda: self.write(info.step, values))

    def evaluation(self, run: WatchedRun, info: StepInfo) -> None:
        """Write the scores."""
        scores = {f"valid/{name}": float(value) for name, value in (info.scores or {}).items() if _is_number(value)}
        self._safely(lambda: self.write(info.step, scores))
        if info.samples:
            self._safely(lambda: self.write_samples(info.step, "\n\n".join(info.samples)))
        self._mean.since = time.monotonic()  # the rate counts no evaluation

    def end(self, run: WatchedRun) -> None:
        """Close the log."""
        score, step = run.progress.best_score, run.progress.best_step
        best = {} if score is None else {f"best/{run.goal.metric}": score, "best/step": float(step)}
        self._safely(lambda: self.close(run.outcome, best))

    def _safely(self, act: Callable[[], None]) -> None:
        if self.broken:
            return
        try:
            act()
        except Exception as error:
            self.broken = True
            text = str(error).strip() or type(error).__name__
            note(f"{self.name} tracks this run no longer: {text.splitlines()[0]}. Training goes on.")


class _Mean:
    """The mean loss and speed of several updates, and the largest norm."""

    def __init__(self) -> None:
        self.loss, self.norm, self.tokens = 0.0, 0.0, 0
        self.since = time.monotonic()

    def add(self, info: StepInfo) -> None:
        self.loss += info.loss * info.tokens
        self.tokens += info.tokens
        self.norm = max(self.norm, info.grad_norm)

    def values(self, last: StepInfo) -> dict[str, float]:
        return {
            "train/loss": self.loss / max(1, self.tokens),
            "train/lr": last.lr,
            "train/grad_norm": self.norm,
            "train/tokens_per_second": self.tokens / max(1e-9, time.monotonic() - self.since),
            "train/epoch": float(last.epoch),
        }


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def plain(config: Mapping[str, Any]) -> dict[str, str | int | float | bool]:
    """A config's values as trackers take them: numbers and texts."""
    return {
        key: value if isinstance(value, (bool, int, float, str)) else str(value)
        for key, value in config.items()
        if value is not None
    }


def name_of(folder: Path) -> str:
    """The name of a run in a tracker."""
    return folder.absolute().name
