"""Work on the models: texts that are written while the client reads, sockets that keep a version, late answers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from unrolled.model import Model
from unrolled.serve import app
from unrolled.serve.service.app import Service
from unrolled.serve.service.errors import ServiceError
from unrolled.serve.service.lanes import Work

Runs = Callable[[str], Path]


def service_of(run_of: Runs, **settings: Any) -> Service:
    made: Service = app({"mood": run_of("classify")}, **settings).state.service
    return made


def test_pieces_come_as_they_are_written(run_of: Runs) -> None:
    closed = []

    def pieces(model: Model) -> Iterator[int]:
        try:
            yield from range(1000)
        finally:
            closed.append(model.task.name)

    async def read(service: Service) -> list[int]:
        await service.begin()
        found = []
        async with aclosing(service.batcher.iterate("mood", pieces)) as written:
            async for piece in written:
                found.append(piece)
                if piece == 9:
                    break
        while not closed:
            await asyncio.sleep(0.01)
        assert service.batcher.idle
        await service.end()
        return found

    assert asyncio.run(read(service_of(run_of))) == list(range(10))
    assert closed == ["classify"]


def test_a_late_answer_is_an_error_and_a_full_queue_too(run_of: Runs) -> None:
    def slow(model: Model, inputs: list[Any], options: Mapping[str, Any]) -> list[Any]:
        time.sleep(0.2)
        return inputs

    work = Work("slow", slow, joins=False)

    async def ask(service: Service) -> list[Any]:
        await service.begin()
        asked = [service.batcher.submit("mood", work, [number], timeout=0.3) for number in range(4)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        await service.end()
        return found

    first, second, third, fourth = asyncio.run(ask(service_of(run_of, max_queue=2)))
    assert first == [0]
    assert isinstance(second, ServiceError)
    assert str(second) == "The answer was not there after 0.3 seconds. Give a longer timeout, or ask for less."
    assert (third.status, fourth.status) == (504, 429)
    assert str(fourth) == "2 inputs wait for model mood already. Try again later."
    assert fourth.headers == {"Retry-After": "1"}


def test_one_wrong_request_does_not_fail_those_beside_it(run_of: Runs) -> None:
    def strict(model: Model, inputs: list[Any], options: Mapping[str, Any]) -> list[Any]:
        if "bad" in inputs:
            raise ValueError
        return [one.upper() for one in inputs]

    work = Work("strict", strict)

    async def ask(service: Service) -> list[Any]:
        await service.begin()
        asked = [service.batcher.submit("mood", work, [text]) for text in ("a", "b", "bad", "c")]
        found = await asyncio.gather(*asked, return_exceptions=True)
        await service.end()
        return found

    a, b, bad, c = asyncio.run(ask(service_of(run_of)))
    assert (a, b, c) == (["A"], ["B"], ["C"])
    with pytest.raises(ValueError, match=r"^$"):
        raise bad


def test_slow_inputs_run_beside_each_other_and_share_their_queue(run_of: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    batches: list[list[int]] = []
    both = threading.Barrier(2, timeout=60)

    def slow(seconds: float) -> Work:
        def run(model: Model, inputs: list[int], options: Mapping[str, Any]) -> list[int]:
            time.sleep(seconds)
            if len(inputs) > 1:
                batches.append(inputs)
                both.wait()
            return inputs

        return Work(f"slow {seconds}", run)

    async def ask(service: Service, work: Work) -> list[Any]:
        await service.begin()
        await service.batcher.submit("mood", work, [0])  # it learns that an input takes long
        found = await service.batcher.submit("mood", work, list(range(6)))
        assert service.batcher.idle
        await service.end()
        return found

    for seconds in (0.1, 0.02):  # one input above `slow_ms`, and below it: all together are above what pays
        batches.clear()
        assert asyncio.run(ask(service_of(run_of, threads=1), slow(seconds))) == [0, 1, 2, 3, 4, 5]
        assert sorted(batches) == [[0, 1, 2], [3, 4, 5]]


def test_what_is_soon_done_is_one_batch(run_of: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    batches: list[list[int]] = []

    def quick(model: Model, inputs: list[int], options: Mapping[str, Any]) -> list[int]:
        batches.append(inputs)
        return inputs

    async def ask(service: Service) -> None:
        await service.begin()
        for _ in range(2):
            await service.batcher.submit("mood", Work("quick", quick), [0, 1, 2, 3])
        await service.end()

    asyncio.run(ask(service_of(run_of, threads=1)))
    assert batches == [[0, 1, 2, 3]] * 2
