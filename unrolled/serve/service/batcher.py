"""The micro-batcher: requests wait a moment for others, run together in worker threads, and get their own answers."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch

from unrolled.model import Model
from unrolled.serve.service.errors import ServiceError
from unrolled.serve.service.lanes import BatchOutcome, Job, Lane, Work, WorkUnit
from unrolled.serve.service.metrics import SECONDS, SIZES, Metrics
from unrolled.serve.service.registry import ModelLease, Registry
from unrolled.serve.service.settings import ServeSettings

T = TypeVar("T")
AHEAD = 64  # pieces of a text that are written before the client has read them
SHORT, LONG = "short", "long"


class Batcher:
    """Runs work on the models. Call it in the event loop; the work itself runs in threads.

    Every model has two lanes. Inputs that are expected to take longer than `slow_ms` go to the second, so that they
    hold up no others; it has threads for all cores. What an input takes is learnt from the batches before it.
    """

    def __init__(self, registry: Registry, settings: ServeSettings, metrics: Metrics) -> None:
        self.registry, self.settings = registry, settings
        self._lanes: dict[tuple[str, str], Lane] = {}
        self._speeds: dict[tuple[str, str], float] = {}  # (model, work) → seconds for a cost of 1
        self._numbers = itertools.count()
        self._writing = 0
        self._sizes = metrics.histogram("unrolled_batch_size", "Inputs in a batch.", ("model", "work"), SIZES)
        self._seconds = metrics.histogram("unrolled_batch_seconds", "Time of a batch.", ("model", "work"), SECONDS)
        metrics.gauge("unrolled_queue", "Inputs that wait.", ("model", "lane")).read = self._queues
        metrics.gauge("unrolled_writing", "Texts being written for clients that read along.").read = lambda: {
            (): self._writing
        }

    def start(self) -> None:
        """Begin in a new event loop."""
        self.close()
        self._writing = 0

    def close(self) -> None:
        for lane in self._lanes.values():
            lane.close()
        self._lanes = {}

    @property
    def idle(self) -> bool:
        return not self._writing and all(lane.idle for lane in self._lanes.values())

    def _queues(self) -> dict[tuple[str, ...], float]:
        return {name: float(len(lane.waiting)) for name, lane in self._lanes.items()}

    async def submit(
        self,
        name: str,
        work: Work,
        inputs: Sequence[Any],
        options: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        priority: int = 0,
        lease: ModelLease | None = None,
    ) -> list[Any]:
        """An answer for each input. Cancelling it drops what has not begun.

        `lease` is a version of the model that the caller holds, as a stream does; else the newest is used. Higher
        priorities go first.
        """
        if not inputs:
            return []
        seconds = min(timeout or self.settings.timeout, self.settings.max_timeout)
        end = asyncio.get_running_loop().time() + seconds
        held = lease if lease is not None else await self._acquired(name, seconds, end)
        job = self._job(work, held.model, list(inputs), options or {}, priority)
        try:
            return await self._run(name, job, seconds, end)
        finally:
            if lease is None:
                held.release()

    async def _acquired(self, name: str, seconds: float, end: float) -> ModelLease:
        """A lease of a model; a model that loads longer than the request may take goes on loading for others."""
        if self.registry.served(name).version is not None:
            return await self.registry.acquire(name)
        try:
            async with asyncio.timeout_at(end):
                return await self.registry.acquire(name)
        except TimeoutError:
            raise too_late(seconds) from None

    def _job(self, work: Work, model: Model, inputs: list[Any], options: Mapping[str, Any], priority: int) -> Job:
        joins = work.joins and options.get("seed") is None
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        key: Any = (id(model), work.name, options_key(options)) if joins else object()
        return Job(work, model, inputs, options, key, priority, joins, future, [None] * len(inputs))

    async def _run(self, name: str, job: Job, seconds: float, end: float) -> list[Any]:
        loop, work = asyncio.get_running_loop(), job.work
        costs = [max(1.0, work.cost(one, job.options)) for one in job.inputs]
        if job.joins:
            parts = [(range(i, i + 1), cost) for i, cost in enumerate(costs)]
        else:
            parts = [(range(len(job.inputs)), sum(costs))]
        speed = self._speeds.get((name, work.name), 0.0)
        units = [WorkUnit(job, places, cost, next(self._numbers), cost * speed) for places, cost in parts]
        job.left = len(units)
        slow = max(unit.seconds for unit in units) > self.settings.slow_ms / 1000
        lane = self._lane(name, LONG if slow else SHORT)
        self._check_room(name, lane, len(units), speed)
        lane.add(units)
        timer = loop.call_at(end, expire, job, seconds)
        try:
            return await job.future
        finally:
            timer.cancel()
            if job.left:  # the client left, the time is over, or there was an error
                job.dead = True
                lane.drop(job)

    def _lane(self, name: str, kind: str) -> Lane:
        lane = self._lanes.get((name, kind))
        if lane is None:
            lane = self._lanes[name, kind] = Lane(f"{name}-{kind}", self.settings, self._done(name))
        return lane

    def _check_room(self, name: str, lane: Lane, coming: int, speed: float) -> None:
        waiting = len(lane.waiting)
        if waiting and waiting + coming > self.settings.max_queue:
            seconds = max(1, math.ceil(speed * sum(unit.cost for unit in lane.waiting)))
            raise ServiceError(
                429,
                f"{waiting:,} inputs wait for model {name} already. Try again later.",
                "queue_full",
                headers={"Retry-After": str(seconds)},
            )

    def _done(self, name: str) -> Callable[[BatchOutcome], None]:
        def done(outcome: BatchOutcome) -> None:
            work, cost, count = outcome.units[0].job.work.name, 0.0, 0
            for unit, found in zip(outcome.units, outcome.found, strict=True):
                cost, count = cost + unit.cost, count + len(unit.places)
                settle(unit, found)
            self._sizes.observe(count, name, work)
            self._seconds.observe(outcome.seconds, name, work)
            speed, old = outcome.seconds / cost, self._speeds.get((name, work))
            self._speeds[name, work] = speed if old is None else old + 0.2 * (speed - old)

        return done

    async def iterate(
        self, name: str, make: Callable[[Model], Iterator[T]], *, timeout: float | None = None
    ) -> AsyncGenerator[T, None]:
        """The pieces of an iterator over the model, as they come: for texts that are written while the client reads.

        `make` and the iterator run in a thread of their own. Closing this closes the iterator.
        """
        if self._writing >= self.settings.max_writing:
            raise ServiceError(
                429,
                f"{self._writing} texts are being written already. Try again later.",
                "too_many_writing",
                headers={"Retry-After": "1"},
            )
        self._writing += 1
        stop, room = threading.Event(), threading.Semaphore(AHEAD)
        loop, pieces = asyncio.get_running_loop(), asyncio.Queue[Any]()
        seconds = min(timeout or self.settings.timeout, self.settings.max_timeout)
        end = loop.time() + seconds
        try:
            with await self._acquired(name, seconds, end) as held:

                def put(piece: Any) -> None:
                    loop.call_soon_threadsafe(pieces.put_nowait, piece)

                threads = self.settings.worker_threads
                arguments = (lambda: make(held.model), put, stop, room, threads)
                threading.Thread(target=write, args=arguments, name=f"unrolled-{name}-write", daemon=True).start()
                while True:
                    try:
                        piece = await asyncio.wait_for(pieces.get(), end - loop.time())
                    except TimeoutError:
                        raise too_late(seconds) from None
                    room.release()
                    if piece is END:
                        return
                    if isinstance(piece, Failure):
                        raise piece.error
                    yield piece
        finally:
            stop.set()
            room.release()
            self._writing -= 1


END = object()


class Failure:
    """An error on its way from a thread."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def write(
    make: Callable[[], Iterator[Any]],
    put: Callable[[Any], None],
    stop: threading.Event,
    room: threading.Semaphore,
    threads: int,
) -> None:
    """Put what an iterator yields, while there is room and nobody says stop."""
    torch.set_num_threads(threads)
    last: Any = END
    try:
        pieces = make()
        try:
            for piece in pieces:
                room.acquire()
                if stop.is_set():
                    break
                put(piece)
        finally:
            if hasattr(pieces, "close"):
                pieces.close()
    except Exception as error:
        last = Failure(error)
    try:
        put(last)
    except RuntimeError:  # the loop is closed
        return


def settle(unit: WorkUnit, found: Any) -> None:
    """Give a job the answers of one of its units; the last one completes it."""
    job = unit.job
    if job.dead or job.future.done():
        return
    if isinstance(found, Exception):
        job.future.set_exception(found)
        return
    job.answers[unit.places.start : unit.places.stop] = found
    job.left -= 1
    if not job.left:
        job.future.set_result(job.answers)


def expire(job: Job, seconds: float) -> None:
    job.dead = True
    if not job.future.done():
        job.future.set_exception(too_late(seconds))


def too_late(seconds: float) -> ServiceError:
    return ServiceError(
        504,
        f"The answer was not there after {seconds:g} seconds. Give a longer timeout, or ask for less.",
        "timeout",
        "timeout",
    )


def options_key(options: Mapping[str, Any]) -> str:
    """Equal for equal options.

    >>> options_key({"beam": 2, "words": ["a"]}) == options_key({"words": ["a"], "beam": 2})
    True
    """
    return json.dumps(options, sort_keys=True, default=repr) if options else ""
