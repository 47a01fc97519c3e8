"""A lane: inputs that wait for worker threads, and the batches it makes of them."""

from __future__ import annotations

import asyncio
import math
import queue
import threading
import time
from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from unrolled.model import Model
from unrolled.serve.service.settings import ServeSettings

WORTH_A_THREAD = 0.02  # seconds of work from which a thread beside one that works pays


@dataclass(frozen=True)
class Work:
    """One sort of work that a model does on inputs: a name for metrics, the function, and what an input costs.

    `run` is called in a worker thread with the inputs of one or several requests, and gives an answer for each, in
    order. No answer may depend on the inputs beside it. `cost` is called in the event loop and must be quick; its unit
    does not matter. With `joins=False` every request runs by itself, its inputs together.
    """

    name: str
    run: Callable[[Model, list[Any], Mapping[str, Any]], Sequence[Any]]
    cost: Callable[[Any, Mapping[str, Any]], float] = lambda one, options: 1.0
    joins: bool = True


@dataclass(eq=False)
class Job:
    """A request's work on one model."""

    work: Work
    model: Model
    inputs: list[Any]
    options: Mapping[str, Any]
    key: Any  # jobs with equal keys may be joined
    priority: int
    joins: bool
    future: asyncio.Future[list[Any]]
    answers: list[Any]
    left: int = 0
    dead: bool = False  # nobody waits for it any more; also read by worker threads


@dataclass(eq=False)
class WorkUnit:
    """A part that is never divided: one input of a job, or all of them where the job does not join others."""

    job: Job
    places: range
    cost: float
    number: int  # of its arrival
    seconds: float = 0.0  # that it is expected to take

    @property
    def order(self) -> tuple[int, int]:
        return -self.job.priority, self.number

    @property
    def size(self) -> int:
        """Units of like sizes are joined: within a factor of about four."""
        return int(self.cost).bit_length()


@dataclass
class BatchOutcome:
    """The end of a batch: for each unit its answers, or an error."""

    units: list[WorkUnit]
    found: list[Any]
    seconds: float


class Lane:
    """Waiting units and the threads that work on them, a batch each at a time. Used in the event loop's thread.

    While the threads work, units gather; one that is free takes those that fit the first, and leaves their share to
    others that are free. A free thread waits for more only where the latest batches show that more will come. What is
    soon done is left to one thread: two would only take turns in Python.
    """

    def __init__(self, name: str, settings: ServeSettings, done: Callable[[BatchOutcome], None]) -> None:
        self.waiting: list[WorkUnit] = []
        self._settings, self._done = settings, done
        self._workers = self._free = settings.workers
        self._crowd = 1.0  # mean size of the latest batches
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._batches: queue.SimpleQueue[list[WorkUnit] | None] = queue.SimpleQueue()
        for _ in range(settings.workers):
            threading.Thread(target=self._work, name=f"unrolled-{name}", daemon=True).start()

    @property
    def idle(self) -> bool:
        return self._free == self._workers and not self.waiting

    def add(self, units: Sequence[WorkUnit]) -> None:
        for unit in units:
            insort(self.waiting, unit, key=lambda one: one.order)
        self._kick()

    def drop(self, job: Job) -> None:
        """Forget the units of a job that nobody waits for."""
        if self.waiting:
            self.waiting = [unit for unit in self.waiting if unit.job is not job]

    def close(self) -> None:
        for _ in range(self._workers):
            self._batches.put(None)

    @property
    def _ready(self) -> int:
        """The free threads that what waits is worth."""
        if self._free == self._workers == 1 or not self._free:
            return self._free
        seconds = 0.0
        for unit in self.waiting:
            seconds += unit.seconds
            if seconds > WORTH_A_THREAD:
                return self._free
        return int(self._free == self._workers)

    def _kick(self) -> None:
        if not self.waiting or self._timer is not None or not self._ready:
            return
        if len(self.waiting) < min(self._settings.max_batch, self._crowd - 0.5) and self._settings.max_wait_ms:
            self._timer = self._loop.call_later(self._settings.max_wait_ms / 1000, self._start)
        else:
            self._start()

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self.waiting and (ready := self._ready):
            batch = self._take(min(self._settings.max_batch, math.ceil(len(self.waiting) / ready)))
            self._crowd += 0.3 * (len(batch) - self._crowd)
            self._free -= 1
            self._batches.put(batch)

    def _take(self, most: int) -> list[WorkUnit]:
        """The first unit, and those that may go with it."""
        first = self.waiting[0]
        batch: list[WorkUnit] = []
        rest: list[WorkUnit] = []
        for unit in self.waiting:
            fits = unit is first or (
                len(batch) < most
                and first.job.joins
                and unit.job.key == first.job.key
                and abs(unit.size - first.size) <= 1
            )
            (batch if fits else rest).append(unit)
        self.waiting = rest
        return batch

    def _finished(self, outcome: BatchOutcome) -> None:
        self._free += 1
        self._done(outcome)
        self._loop.call_soon(self._kick)  # after the requests that have just come are read

    def _work(self) -> None:
        torch.set_num_threads(self._settings.worker_threads)
        while (batch := self._batches.get()) is not None:
            began = time.perf_counter()
            found = answers_of(batch)
            outcome = BatchOutcome(batch, found, time.perf_counter() - began)
            try:
                self._loop.call_soon_threadsafe(self._finished, outcome)
            except RuntimeError:  # the loop is closed
                return


def answers_of(batch: Sequence[WorkUnit]) -> list[Any]:
    """The answers of each unit, or its error. Where a joined batch fails, each of its jobs is tried by itself."""
    alive = [unit for unit in batch if not unit.job.dead]
    if not alive:
        return [[] for _ in batch]
    found: dict[int, Any] = {}
    try:
        found = _together(alive)
    except Exception as error:
        by_job: dict[int, list[WorkUnit]] = {}
        for unit in alive:
            by_job.setdefault(id(unit.job), []).append(unit)
        if len(by_job) == 1:
            found = {id(unit): error for unit in alive}
        else:
            for units in by_job.values():
                try:
                    found |= _together(units)
                except Exception as own:
                    found |= {id(unit): own for unit in units}
    return [found.get(id(unit), []) for unit in batch]


def _together(units: Sequence[WorkUnit]) -> dict[int, Any]:
    job = units[0].job
    inputs = [unit.job.inputs[place] for unit in units for place in unit.places]
    answers = list(job.work.run(job.model, inputs, job.options))
    if len(answers) != len(inputs):
        raise RuntimeError(f"{job.work.name} gave {len(answers)} answers to {len(inputs)} inputs")
    found, at = {}, 0
    for unit in units:
        found[id(unit)] = answers[at : at + len(unit.places)]
        at += len(unit.places)
    return found
