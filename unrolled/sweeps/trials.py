"""The trials of a sweep in Optuna's journal, one file that processes and machines share: JSON lines, no pickle."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState

from unrolled.errors import UserError
from unrolled.sweeps.alive import Worker
from unrolled.sweeps.plan import SweepPlan
from unrolled.sweeps.rows import State, TrialRow
from unrolled.sweeps.settings import SweepSettings
from unrolled.sweeps.spaces import Alternatives, Space, from_label, label_of, labels
from unrolled.training import Goal

JOURNAL, NAME = "journal.log", "sweep"
WORKER, REASON, RUN, ATTEMPT, BEFORE, STOPPED = "worker", "reason", "run", "attempt", "goes_on_from", "stopped"
ATTEMPTS = 3  # of a trial whose process is killed
LARGEST_GRID = 1000
STATES: dict[TrialState, State] = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
    TrialState.RUNNING: "running",
    TrialState.WAITING: "waiting",
}


@dataclass(frozen=True)
class AskedTrial:
    """A trial to run: its number, its values, and the trial that it goes on with."""

    handle: optuna.trial.Trial
    number: int
    params: Mapping[str, Any]
    before: int | None
    attempt: int


class Trials:
    """The trials of a sweep's folder."""

    def __init__(self, folder: Path, plan: SweepPlan, settings: SweepSettings, goal: Goal) -> None:
        """Open the journal, or begin it."""
        self.folder, self.plan, self.settings, self.goal = folder, plan, settings, goal
        path = (folder / JOURNAL).absolute()
        with file_lock(path):
            _mend(path)
        with _quiet(), _readable(path):
            # a lock by a file that only one process can make, which holds on network disks too
            storage = JournalStorage(JournalFileBackend(str(path), lock_obj=JournalFileOpenLock(str(path))))
            self.study = optuna.create_study(
                storage=storage,
                study_name=NAME,
                sampler=_NumberedSampler(settings),
                pruner=_pruner(settings),
                direction="maximize" if goal.higher_is_better else "minimize",
                load_if_exists=True,
            )

    def agree(self, facts: Mapping[str, Any]) -> None:
        """An error if another process of the sweep found other facts, such as other data."""
        with self._asking():
            for name, value in facts.items():
                there = self.study.user_attrs.get(name)
                if there is None:
                    self.study.set_user_attr(name, value)
                elif there != value:
                    raise UserError(
                        f"The {name} here differs from that of the other trials of {self.folder}.",
                        "Give every process the same files, or begin another sweep with --out.",
                    )

    @property
    def limit(self) -> int | None:
        """The number of trials; fewer than were asked for if there are no more combinations."""
        most = self.settings.most_trials
        grid = self.grid
        return most if grid is None else min(len(grid), most or len(grid))

    @cached_property
    def grid(self) -> list[dict[str, Any]] | None:
        """All combinations, if the sweep can try each once."""
        return self.plan.combinations(min(self.settings.most_trials or LARGEST_GRID, LARGEST_GRID))

    def ask(self, worker: Worker) -> AskedTrial | None:
        """The next trial, which no other process gets; None if there are enough."""
        with self._asking(), _quiet():
            self._bury(worker)
            limit, rows = self.limit, self.rows()
            if limit is not None and sum(row.counts for row in rows) >= limit:
                return None
            self._queue_grid()
            trial = self.study.ask()
            trial.set_user_attr(WORKER, worker.name)
            params = self.plan.draw(lambda path, space: _suggested(trial, path, space))
            attributes = trial.user_attrs
            return AskedTrial(trial, trial.number, params, attributes.get(BEFORE), attributes.get(ATTEMPT, 1))

    def _queue_grid(self) -> None:
        """Queue those of a few combinations that no trial has yet."""
        grid = self.grid
        if grid is None:
            return
        known = [_fixed(trial) for trial in self._frozen()]
        for values in grid:
            wanted = {path: label_of(value) for path, value in values.items()}
            if wanted not in known:
                self.study.enqueue_trial(wanted)

    def _bury(self, worker: Worker) -> None:
        """Trials of processes that are gone fail, and are queued again."""
        for trial in self._frozen():
            if trial.state != TrialState.RUNNING:
                continue
            owner = trial.user_attrs.get(WORKER)  # None: its process went while it asked
            if owner is not None and worker.sees(owner):
                continue
            with suppress(ValueError, optuna.exceptions.UpdateFinishedTrialError):  # another process was first
                self.study.tell(trial.number, state=TrialState.FAIL)
                attempt = trial.user_attrs.get(ATTEMPT, 1)
                if attempt < ATTEMPTS and _fixed(trial):
                    self._queue_again(trial.number, _fixed(trial), attempt + 1)

    def _queue_again(self, number: int, params: Mapping[str, Any], attempt: int) -> None:
        self.study.enqueue_trial(dict(params), user_attrs={BEFORE: number, ATTEMPT: attempt})

    def finish(
        self, asked: AskedTrial, state: State, score: float | None, run: Mapping[str, Any], reason: str = ""
    ) -> bool:
        """Record the end of a trial; False if others took this process for dead, and the trial from it."""
        told = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED}.get(state, TrialState.FAIL)
        with self._asking(), _quiet():
            try:
                asked.handle.set_user_attr(RUN, dict(run))
                if reason:
                    asked.handle.set_user_attr(REASON, reason)
                if state == "stopped":
                    asked.handle.set_user_attr(STOPPED, True)
                self.study.tell(asked.handle, score if told == TrialState.COMPLETE else None, told)
            except (ValueError, optuna.exceptions.UpdateFinishedTrialError):
                return False
            if state == "stopped":
                self._queue_again(asked.number, {k: label_of(v) for k, v in asked.params.items()}, asked.attempt)
        return True

    def rows(self) -> list[TrialRow]:
        """All trials in the order of their numbers."""
        trials = self._frozen()
        after = {trial.user_attrs[BEFORE]: trial.number for trial in trials if BEFORE in trial.user_attrs}
        return [self._row(trial, after.get(trial.number)) for trial in trials]

    def _row(self, trial: FrozenTrial, then: int | None) -> TrialRow:
        run, state, reason = trial.user_attrs.get(RUN, {}), STATES[trial.state], trial.user_attrs.get(REASON, "")
        if state == "failed" and STOPPED in trial.user_attrs:
            state = "stopped"
        elif state == "failed" and not reason:
            state = "killed"
            reason = "" if then is not None else f"its process was killed {ATTEMPTS} times: has it enough memory?"
        score = trial.value if trial.value is not None and math.isfinite(trial.value) else None
        return TrialRow(
            trial.number,
            state,
            score,
            run.get("seconds"),
            run.get("steps"),
            run.get("epochs"),
            {path: _value(self.plan, path, label) for path, label in _fixed(trial).items()},
            [(int(step), float(value)) for step, value in run.get("curve", ())],
            reason,
            then,
        )

    def _frozen(self) -> list[FrozenTrial]:
        with _readable(self.folder / JOURNAL):
            return self.study.get_trials(deepcopy=False)

    def importance(self) -> dict[str, float]:
        """The share of each key in the differences between trials (PED-ANOVA); empty where there are too few."""
        complete = sum(trial.state == TrialState.COMPLETE for trial in self._frozen())
        if complete < 2 * len(self.plan.spaces) or complete < 6 or len(self.plan.spaces) < 2:
            return {}
        quantile = max(0.1, min(0.5, 5 / complete))  # five trials or more among the best
        with _quiet():
            found = get_param_importances(self.study, evaluator=PedAnovaImportanceEvaluator(target_quantile=quantile))
        shares = {path: float(share) for path, share in found.items()}
        return shares if len(set(shares.values())) > 1 else {}  # equal shares: scores that cannot be told apart

    @contextmanager
    def _asking(self) -> Iterator[None]:
        with file_lock(self.folder / "ask"):
            yield


def _fixed(trial: FrozenTrial) -> dict[str, Any]:
    """The labels of a trial's parameters, also of one that waits."""
    labels: dict[str, Any] = trial.params or trial.system_attrs.get("fixed_params", {})
    return labels


def _value(plan: SweepPlan, path: str, label: Any) -> Any:
    return from_label(plan.spaces[path], label)


def _suggested(trial: optuna.trial.Trial, path: str, space: Space) -> Any:
    distribution = _distribution(space)
    if isinstance(distribution, CategoricalDistribution):
        label: Any = trial.suggest_categorical(path, distribution.choices)
    elif isinstance(distribution, IntDistribution):
        step = distribution.step
        label = trial.suggest_int(path, distribution.low, distribution.high, step=step, log=distribution.log)
    else:
        assert isinstance(distribution, FloatDistribution)
        low, high = distribution.low, distribution.high
        label = trial.suggest_float(path, low, high, step=distribution.step, log=distribution.log)
    return from_label(space, label)


def _distribution(space: Space) -> BaseDistribution:
    if isinstance(space, Alternatives):
        return CategoricalDistribution(labels(space))
    if space.whole:
        low, last = int(space.low), int(space.all[-1]) if not space.log else int(space.high)
        return IntDistribution(low, last, log=space.log, step=int(space.step or 1))
    high = space.high if space.step is None else space.all[-1]
    return FloatDistribution(space.low, high, log=space.log, step=space.step)


class _NumberedSampler(BaseSampler):
    """A sampler whose draws depend on the seed and on the trials before alone: a sweep can stop and go on."""

    def __init__(self, settings: SweepSettings) -> None:
        self.settings = settings
        self.inner = self._make(0)

    def _make(self, number: int) -> BaseSampler:
        seed = (1_000_003 * (self.settings.seed + 1) + number) % 2**32
        return RandomSampler(seed=seed) if self.settings.sampler == "random" else TPESampler(seed=seed)

    def before_trial(self, study: Any, trial: Any) -> None:
        """Trials that go on with others draw nothing, and do not count."""
        before = [one for one in study.get_trials(deepcopy=False) if one.number < trial.number]
        self.inner = self._make(sum(BEFORE not in one.user_attrs for one in before))
        self.inner.before_trial(study, trial)

    def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, BaseDistribution]:
        return self.inner.infer_relative_search_space(study, trial)

    def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
        return self.inner.sample_relative(study, trial, search_space)

    def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
        return self.inner.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(self, study: Any, trial: Any, state: TrialState, values: Sequence[float] | None) -> None:
        self.inner.after_trial(study, trial, state, values)


def _pruner(settings: SweepSettings) -> BasePruner:
    """Pruners count evaluations: the first is 1."""
    makers: dict[str, Callable[[], BasePruner]] = {
        "median": lambda: MedianPruner(n_startup_trials=5, n_warmup_steps=2, n_min_trials=3),
        "hyperband": lambda: HyperbandPruner(min_resource=1, max_resource="auto", reduction_factor=3),
        "none": NopPruner,
    }
    return makers[settings.pruner]()


def _mend(path: Path) -> None:
    """Cut off the line that a killed process, or a full disk, left unfinished."""
    if path.exists() and path.stat().st_size:
        with path.open("rb+") as file:
            file.seek(-1, 2)
            if file.read(1) != b"\n":
                raw = path.read_bytes()
                file.truncate(raw.rfind(b"\n") + 1)


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """A lock beside a file, for all processes on all machines."""
    lock = JournalFileOpenLock(str(path))
    lock.acquire()
    try:
        yield
    finally:
        with suppress(RuntimeError):  # others took it after half a minute
            lock.release()


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except (ValueError, KeyError, AssertionError, TypeError) as error:
        raise UserError(
            f"{path} is damaged: {type(error).__name__}, {str(error)[:200]}.", "Begin another sweep with --out."
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Optuna's log lines and warnings are not for our users."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(level)
