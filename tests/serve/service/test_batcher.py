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
    both = threading.Barrier(2, timeout=20)

    def slow(model: Model, inputs: list[int], options: Mapping[str, Any]) -> list[int]:
        time.sleep(0.1)
        if len(inputs) > 1:
            batches.append(inputs)
            both.wait()
        return inputs

    work = Work("slow", slow)

    async def ask(service: Service) -> list[Any]:
        await service.begin()
        await service.batcher.submit("mood", work, [0])  # it learns that an input takes long
        found = await asyncio.gather(*(service.batcher.submit("mood", work, [10 * n, 10 * n + 1]) for n in range(3)))
        assert service.batcher.idle
        await service.end()
        return found

    assert asyncio.run(ask(service_of(run_of, threads=1))) == [[0, 1], [10, 11], [20, 21]]
    assert len(batches) == 2
