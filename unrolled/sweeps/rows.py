"""A sweep's trials as rows, without Optuna."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["complete", "pruned", "failed", "stopped", "killed", "running", "waiting"]
SHARED = ("number", "state", "score", "seconds", "steps", "epochs")


@dataclass(frozen=True)
class TrialRow:
    """One trial. A stopped or killed one goes on as another, `then`."""

    number: int
    state: State
    score: float | None = None  # the best of a complete trial, the last of a pruned one
    seconds: float | None = None
    steps: int | None = None
    epochs: int | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    curve: Sequence[tuple[int, float]] = ()  # updates and score of each evaluation
    reason: str = ""
    then: int | None = None

    @property
    def counts(self) -> bool:
        """True if it is one of the trials asked for: not if another takes its place, or it has not begun."""
        return self.then is None and self.state not in ("waiting", "stopped")

    @property
    def note(self) -> str:
        """The reason of its end, and the trial that goes on with it."""
        return "; ".join([*([self.reason] if self.reason else []), *([f"goes on as {self.then}"] if self.then else [])])

    def cells(self) -> dict[str, Any]:
        """Names and values of the columns, parameters under their keys."""
        return {**{name: getattr(self, name) for name in SHARED}, **self.params, "note": self.note}


def best_of(rows: Iterable[TrialRow], *, higher_is_better: bool) -> TrialRow | None:
    """The complete trial with the best score; of equal ones the first."""
    complete = [row for row in rows if row.state == "complete" and row.score is not None]
    sign = -1 if higher_is_better else 1
    return min(complete, key=lambda row: (sign * (row.score or 0.0), row.number), default=None)


def as_csv(rows: Sequence[TrialRow], keys: Sequence[str]) -> str:
    """The table of all trials; parameters that a trial does not have are empty."""
    file = io.StringIO()
    writer = csv.DictWriter(file, [*SHARED, *keys, "note"], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(value) for name, value in row.cells().items()})
    return file.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
