"""Clients that leave, dawdle or do not read, against a real process; and its end under load."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.serve.service.test_command import free_port

PROGRAM = """
import sys
from unrolled.serve.service.process import run
from unrolled.serve.service.settings import ServeSettings

run({"mood": sys.argv[1]}, ServeSettings(port=int(sys.argv[2]), read_timeout=0.5), lambda text: print(text, flush=True))
"""


@contextmanager
def running(run: Path) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    port = free_port()
    command = [sys.executable, "-c", PROGRAM, str(run), str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("http://127.0.0.1")
            yield port, process
        finally:
            if process.poll() is None:
                process.kill()


def request(text: str, more: str = "") -> bytes:
    body = json.dumps({"inputs": text}).encode()
    head = f"POST /v1/models/mood/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


def everything(port: int, sent: bytes, seconds: float = 20) -> bytes:
    """The bytes that a connection gets until its end."""
    found = b""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as link:
        link.sendall(sent)
        try:
            while piece := link.recv(65536):
                found += piece
        except ConnectionResetError:
            pass
    return found


async def answered(reader: asyncio.StreamReader) -> tuple[int, bytes, bool]:
    """Status, body, and whether the connection ends."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.partition("content-length: ")[2].split("\r\n")[0])
    return int(head.split()[1]), await reader.readexactly(length), "connection: close" in head


async def client(port: int, stop: asyncio.Event, found: list[int]) -> int:
    """Ask until the service says that it ends, or takes no connection; the number of requests without an answer."""
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            assert stop.is_set()
            return 0
        while True:
            writer.write(request("one fine two"))
            try:
                status, body, last = await answered(reader)
            except (ConnectionError, asyncio.IncompleteReadError):
                return 1
            found.append(status)
            assert b'"predictions"' in body
            if last:
                writer.close()
                break


def test_slow_and_hostile_connections_and_sigterm_under_load(run_of: Callable[[str], Path]) -> None:
    with running(run_of("classify")) as (port, process):
        assert everything(port, request("one", "Connection: close\r\n")).startswith(b"HTTP/1.1 200")
        began = time.monotonic()
        assert everything(port, b"GET /healthz HTTP/1.1\r\nHost: 127.0") == b""  # headers that never end
        assert everything(port, b"") == b""
        slow_body = everything(port, request("one")[:-4])
        assert slow_body.startswith(b"HTTP/1.1 408")
        assert b"The body was not there after 0.5 seconds." in slow_body
        assert time.monotonic() - began < 10
        assert everything(port, b"GET /healthz HTTP/1.1\r\n" + b"X-A: " + b"a" * 200_000) == b""  # too large
        large = everything(
            port, b"GET /healthz HTTP/1.1\r\nConnection: close\r\nHost: 127.0.0.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n"
        )
        assert large.startswith(b"HTTP/1.1 431")
        assert everything(port, b"\x16\x03\x01\x02\x00 no http").startswith(b"HTTP/1.1 400")

        async def load() -> tuple[int, list[int]]:
            stop, found = asyncio.Event(), list[int]()
            clients = [asyncio.create_task(client(port, stop, found)) for _ in range(24)]
            while len(found) < 100:
                await asyncio.sleep(0.02)
            stop.set()
            process.send_signal(signal.SIGTERM)
            return sum(await asyncio.gather(*clients)), found

        lost, found = asyncio.run(load())
        assert process.wait(30) == 0
    assert lost == 0
    assert set(found) == {200}


def test_a_client_that_leaves_takes_its_work_along(run_of: Callable[[str], Path]) -> None:
    pytest.importorskip("fastapi")
    from unrolled.serve import app
    from unrolled.serve.service.lanes import Work

    service = app({"mood": run_of("classify")}).state.service
    ran = []

    def slow(model: object, inputs: list[str], options: object) -> list[str]:
        ran.append(inputs)
        time.sleep(0.1)
        return inputs

    async def run() -> None:
        await service.begin()
        work = Work("slow", slow, joins=False)
        first, second, third = (asyncio.create_task(service.batcher.submit("mood", work, [text])) for text in "abc")
        while not ran:
            await asyncio.sleep(0.01)
        second.cancel()
        assert await first == ["a"]
        assert await third == ["c"]
        assert service.batcher.idle
        await service.end()

    asyncio.run(run())
    assert ran == [["a"], ["c"]]
