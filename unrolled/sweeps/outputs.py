"""The files of a sweep: its table, its best config and model, its pictures and page."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unrolled.sweeps.figures import TrialsFigures
from unrolled.sweeps.page import page_of
from unrolled.sweeps.plan import SweepPlan
from unrolled.sweeps.rows import TrialRow, as_csv, best_of
from unrolled.sweeps.trial import trial_folder
from unrolled.sweeps.trials import Trials, file_lock
from unrolled.training import Goal, checkpoint
from unrolled.training.checkpoint import write_atomically
from unrolled.training.folder import BEST, CONFIG, INIT, LAST

SWEEP, TABLE, BEST_CONFIG, PAGE = "sweep.toml", "trials.csv", "best.toml", "sweep.html"
FOR_RESUMING = (checkpoint.CURRENT, checkpoint.PREVIOUS, checkpoint.NEW, LAST, INIT)


@dataclass(frozen=True)
class Outputs:
    """The files of one sweep, which all its processes write."""

    folder: Path
    plan: SweepPlan
    goal: Goal

    def update(self, rows: Sequence[TrialRow], *, keep: bool) -> None:
        """Write the table, and the best config and model; remove models of other trials unless they are kept."""
        with file_lock(self.folder / TABLE):
            write_atomically(self.folder / TABLE, as_csv(rows, list(self.plan.spaces)))
            best = best_of(rows, higher_is_better=self.goal.higher_is_better)
            if best is not None:
                self._keep_best(best)
        for row in rows:
            if not keep and row.state in ("complete", "pruned", "failed"):
                self._tidy(row, is_best=best is not None and row.number == best.number)

    def _keep_best(self, best: TrialRow) -> None:
        source, model = trial_folder(self.folder, best.number), trial_folder(self.folder, best.number) / BEST
        if not (source / CONFIG).is_file():
            return
        init = f" --init {self.plan.init}" if self.plan.init else ""
        lines = [
            f"# Trial {best.number} of {self.folder}: {self.goal.metric} {best.score:.6g}.",
            f"# The same weights again: unrolled train {self.folder / BEST_CONFIG}{init}",
        ]
        text = "\n".join([*lines, "", (source / CONFIG).read_text(encoding="utf-8")])
        place = self.folder / BEST_CONFIG
        if place.is_file() and place.read_text(encoding="utf-8") == text and (self.folder / BEST).exists():
            return
        if model.is_file():
            write_atomically(self.folder / BEST, model.read_bytes())
            write_atomically(place, text)

    def _tidy(self, row: TrialRow, *, is_best: bool) -> None:
        folder = trial_folder(self.folder, row.number)
        for name in (*FOR_RESUMING, *(() if is_best and not self._has(row) else (BEST,))):
            path = folder / name
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def _has(self, row: TrialRow) -> bool:
        """True if the best files are those of this trial."""
        place = self.folder / BEST_CONFIG
        return place.is_file() and place.read_text(encoding="utf-8").startswith(f"# Trial {row.number} of ")

    def draw(self, trials: Trials) -> None:
        """Write the pictures and the page."""
        rows, spaces = trials.rows(), self.plan.spaces
        logs = [path for path, space in spaces.items() if getattr(space, "log", False)]
        figures = TrialsFigures(
            rows, list(spaces), logs, self.goal.metric, self.goal.higher_is_better, trials.importance()
        )
        pictures = figures.pictures()
        page = page_of(self.folder, self.plan, self.goal, figures, pictures)
        with file_lock(self.folder / TABLE):
            for name, raw in pictures.items():
                write_atomically(self.folder / f"{name}.png", raw)
            write_atomically(self.folder / PAGE, page)
