"""A line on the terminal for each trial."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from unrolled.durations import clock
from unrolled.sweeps.rows import TrialRow, best_of
from unrolled.training import Goal

ENDED = ("complete", "pruned", "failed", "stopped", "killed")
WIDEST = 100  # characters of parameters and reasons


class SweepProgress:
    """Says on stderr what became of each trial, of all processes, with the best score so far and the time left."""

    def __init__(self, goal: Goal, limit: int | None, deadline: float | None, *, quiet: bool = False) -> None:
        self.goal, self.limit, self.deadline, self.quiet = goal, limit, deadline, quiet
        self.said: set[int] = set()
        self.begun, self.ended, self.titled = time.monotonic(), 0, False

    def begin(self, rows: Sequence[TrialRow]) -> None:
        """Trials that ended before this process began are counted, not listed."""
        self.said = {row.number for row in rows if row.state in ENDED}
        done = sum(row.counts for row in rows if row.state in ENDED)
        if done:
            self.say(f"{done} trials have ended already; the sweep goes on.")

    def show(self, rows: Sequence[TrialRow]) -> None:
        """Say what became of trials since the last call."""
        for row in rows:
            if row.state in ENDED and row.number not in self.said:
                self.said.add(row.number)
                self.ended += row.counts
                self._line(row, rows)

    def say(self, text: str) -> None:
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def _line(self, row: TrialRow, rows: Sequence[TrialRow]) -> None:
        if not self.titled:
            self.titled = True
            self.say(f"{'trial':>5}  {'state':<8}  {self.goal.metric:>10}  {'best so far':<20}  {'left':>7}")
        before = [one for one in rows if one.number in self.said]
        best = best_of(before, higher_is_better=self.goal.higher_is_better)
        score = "" if row.score is None else f"{row.score:.4f}"
        so_far = "" if best is None or best.score is None else f"{best.score:.4f} (trial {best.number})"
        what = row.note.split("\n")[0] if row.state not in ("complete", "pruned") else parameters(row.params)
        self.say(f"{row.number:>5}  {row.state:<8}  {score:>10}  {so_far:<20}  {self._left(rows):>7}  {what[:WIDEST]}")

    def _left(self, rows: Sequence[TrialRow]) -> str:
        """The time to the end, from the trials that ended since this process began."""
        seconds: list[float] = []
        done = sum(row.counts for row in rows if row.state in ENDED)
        if self.limit is not None and self.ended:
            seconds.append((time.monotonic() - self.begun) / self.ended * max(0, self.limit - done))
        if self.deadline is not None:
            seconds.append(max(0.0, self.deadline - time.time()))
        return clock(min(seconds)) if seconds else ""


def parameters(params: Mapping[str, Any]) -> str:
    """Parameters as `--set` takes them, numbers with four digits.

    >>> parameters({"train.lr": 0.00312345, "model.cell": "gru"})
    'train.lr=0.003123 model.cell=gru'
    """
    return " ".join(f"{path}={f'{value:.4g}' if isinstance(value, float) else value}" for path, value in params.items())
