"""Runs trials until there are enough: in this process, or in one that `unrolled.sweeps.processes` started."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unrolled.errors import Note, UserError
from unrolled.jobs import find_target
from unrolled.sweeps.alive import Worker
from unrolled.sweeps.outputs import SWEEP, Outputs
from unrolled.sweeps.plan import SweepPlan, make_plan
from unrolled.sweeps.rows import TrialRow
from unrolled.sweeps.settings import SweepSettings
from unrolled.sweeps.trial import SharedReader, SweepBounds, TrialOutcome, TrialRunner
from unrolled.sweeps.trials import AskedTrial, Trials
from unrolled.tasks.own import load_task
from unrolled.training import Goal

HOPELESS = 10  # failures, without any other end, that end a sweep


@dataclass(frozen=True)
class TrialLoop:
    """Runs trials one after another."""

    trials: Trials
    runner: TrialRunner
    outputs: Outputs
    keep: bool = False

    def run(self, after: Callable[[Sequence[TrialRow]], None] = lambda rows: None) -> None:
        """Until there are enough, or a bound is reached; `after` sees all trials after each."""
        with Worker(self.trials.folder) as worker:
            while not self.runner.bounds.reached:
                asked = self.trials.ask(worker)
                if asked is None:
                    return
                outcome = self._same(asked) or self.runner.run(asked)
                self.trials.finish(asked, outcome.state, outcome.score, outcome.run, outcome.reason)
                rows = self.trials.rows()
                self.outputs.update(rows, keep=self.keep)
                after(rows)
                if outcome.interrupted is not None:
                    raise outcome.interrupted
                check_hope(rows, every=False)

    def _same(self, asked: AskedTrial) -> TrialOutcome | None:
        """The outcome of an earlier trial with the same values: a run with the same config is the same run."""
        for row in self.trials.rows():
            if row.number != asked.number and row.state == "complete" and dict(row.params) == dict(asked.params):
                run = {"seconds": 0.0, "steps": row.steps, "epochs": row.epochs, "curve": row.curve}
                return TrialOutcome("complete", row.score, run, f"the same as trial {row.number}")
        return None


def check_hope(rows: Sequence[TrialRow], *, every: bool) -> None:
    """An error if all trials failed: ten, or, at the end of a sweep, `every` one."""
    failed = [row for row in rows if row.state in ("failed", "killed") and row.then is None]
    others = [row for row in rows if row.state in ("complete", "pruned", *(() if every else ("running",)))]
    if not others and len(failed) >= (1 if every else HOPELESS):
        number = "The trial" if len(failed) == 1 else f"All {len(failed)} trials"
        raise UserError(
            f"{number} failed. The first, trial {failed[0].number}: {failed[0].reason}",
            "Change the ranges or the config, and begin another sweep.",
        )


def run_job(job: Mapping[str, Any]) -> None:
    """Run trials for the process that wrote the job."""
    warnings.simplefilter("ignore", Note)  # the first process says them
    folder = Path(job["folder"])
    task = None if job["task"] is None else load_task(job["task"])
    plan, _ = make_plan(find_target(folder / SWEEP, task), [], {})
    settings, goal = SweepSettings(**job["settings"]), Goal(**job["goal"])
    bounds = SweepBounds(job["deadline"], job["parent"])
    loop_of(folder, plan, settings, goal, SharedReader(plan.task), job["threads"], bounds).run()


def loop_of(
    folder: Path,
    plan: SweepPlan,
    settings: SweepSettings,
    goal: Goal,
    reader: SharedReader,
    threads: int,
    bounds: SweepBounds,
) -> TrialLoop:
    """The loop of one process."""
    trials = Trials(folder, plan, settings, goal)
    runner = TrialRunner(plan, goal, reader, folder, threads, bounds)
    return TrialLoop(trials, runner, Outputs(folder, plan, goal), settings.keep)
