"""Progress reports of a run: one live line, a row for each evaluation, samples."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TextIO

from unrolled.training.loop import Progress, StepInfo
from unrolled.training.traits import Goal

PLAIN_SECONDS = 10.0  # between two lines without a terminal
LIVE_SECONDS = 0.1  # between two changes of the live line


class Report:
    """Writes to stderr; a live line on a terminal or in a notebook, plain lines elsewhere, nothing when quiet."""

    def __init__(
        self,
        goal: Goal,
        total_steps: int,
        *,
        unit: str = "tokens",
        start_step: int = 0,
        quiet: bool = False,
        stream: TextIO | None = None,
    ) -> None:
        self.goal, self.total_steps, self.unit, self.quiet = goal, total_steps, unit, quiet
        self.stream = stream or sys.stderr
        self._start_step, self._begun, self._shown = start_step, time.monotonic(), time.monotonic()
        self._tokens, self._loss, self._header = 0, 0.0, False
        self._since = [0.0, 0]  # loss and tokens since the last evaluation
        self._bar = None if quiet else _bar(self.stream, total_steps, start_step)

    def __enter__(self) -> Report:
        if self._bar is not None:
            self._bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.__exit__(kind, error, trace)

    def say(self, text: str) -> None:
        """Print a permanent line."""
        if self.quiet:
            return
        if self._bar is not None:
            self._bar.print(text)
        else:
            print(text, file=self.stream, flush=True)

    def step(self, info: StepInfo, progress: Progress) -> None:
        """Report an update."""
        self._tokens += info.tokens
        self._since = [self._since[0] + info.loss * info.tokens, self._since[1] + info.tokens]
        self._loss = info.loss if info.step - self._start_step <= 1 else 0.95 * self._loss + 0.05 * info.loss
        if self.quiet:
            return
        now = time.monotonic()
        if self._bar is not None:
            if now - self._shown > LIVE_SECONDS or info.scores is not None:
                self._shown = now
                self._bar.update(info.step, self._line(info))
        elif now - self._shown > PLAIN_SECONDS:
            self._shown = now
            self.say(f"{100 * info.step / self.total_steps:3.0f} %  {self._line(info)}")
        if info.scores is not None:
            self._row(info, info.scores)

    def _line(self, info: StepInfo) -> str:
        seconds = max(1e-9, time.monotonic() - self._begun)
        done = info.step - self._start_step
        left = seconds / max(1, done) * (self.total_steps - info.step)
        return (
            f"{self._tokens / seconds:,.0f} {self.unit}/s  lr {info.lr:.2e}  loss {self._loss:.4f}  "
            f"{int(left) // 60}:{int(left) % 60:02d} left"
        )

    def _row(self, info: StepInfo, scores: dict[str, float]) -> None:
        names = [name for name in scores if name != "tokens"]
        if not self._header:
            self.say("  ".join(f"{name:>14}" for name in ["step", "train loss", *names]))
            self._header = True
        values = "  ".join(f"{scores[name]:>14.4f}" for name in names)
        train = self._since[0] / max(1, self._since[1])
        self._since = [0.0, 0]
        self.say(f"{info.step:>14}  {train:>14.4f}  {values}{'  best' if info.is_best else ''}")


def stopped_early(goal: Goal, progress: Progress, scores: dict[str, float]) -> str:
    """The reason of early stopping, for the user; `scores` are those of the last evaluation."""
    step = progress.best_step if progress.better_step is None else progress.better_step  # older checkpoints have none
    loss = goal.loss_in(scores)
    same = "" if loss is None else f", nor a lower {loss[0]} with an equal one,"
    return (
        f"Stopped early: no better {goal.metric} than at step {step}{same} "
        f"in the last {progress.stalled} evaluations (train.patience)."
    )


class _Bar:
    """rich's progress bar, for terminals and notebooks."""

    def __init__(self, stream: TextIO, total: int, start: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        self.console = Console(file=stream, highlight=False)
        self._progress = Progress(
            TaskProgressColumn(), BarColumn(30), TextColumn("{task.description}"), console=self.console, transient=True
        )
        self._task = self._progress.add_task("", total=total, completed=start)

    def __enter__(self) -> None:
        self._progress.start()

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, step: int, line: str) -> None:
        self._progress.update(self._task, completed=step, description=line)

    def print(self, text: str) -> None:
        self.console.print(text, markup=False, soft_wrap=True)


def _bar(stream: TextIO, total: int, start: int) -> _Bar | None:
    notebook = "ipykernel" in sys.modules
    return _Bar(stream, total, start) if notebook or stream.isatty() else None
