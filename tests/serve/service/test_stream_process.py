"""Streams of a real process, through the `websockets` package: slow readers, and an end that hands out tokens."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import subprocess
import sys
import wave
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.serve.service.streaming import Told, cut, final_of, sound, streaming_model
from tests.serve.service.test_command import free_port
from tests.serve.service.test_streams import SPEECH


@contextlib.asynccontextmanager
async def served(run: Path, key: Path) -> AsyncIterator[tuple[str, subprocess.Popen[str]]]:
    """A process that serves a model as `hear`, and the address of its streams."""
    port = free_port()
    words = ["serve", f"hear={run}", "--port", str(port), "--state-key-file", str(key), "--threads", "1"]
    with subprocess.Popen([sys.executable, "-m", "unrolled", *words], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "serves hear" in await asyncio.to_thread(process.stderr.readline)
        try:
            yield f"ws://127.0.0.1:{port}/v1/models/hear/stream", process
        finally:
            process.kill()


def documented_client() -> dict[str, Any]:
    """The client of docs/serve.md."""
    text = (Path(__file__).parents[3] / "docs" / "serve.md").read_text()
    (block,) = [one for one in re.findall(r"```py\n(.*?)```", text, re.DOTALL) if "transcribe" in one]
    names: dict[str, Any] = {"__name__": "client"}
    exec(block, names)
    return names


async def begun(socket: ClientConnection, **start: Any) -> dict[str, Any]:
    await socket.send(json.dumps({"type": "start", **start}))
    ready: dict[str, Any] = json.loads(await socket.recv())
    assert ready["type"] == "ready", ready
    return ready


async def final(socket: ClientConnection) -> dict[str, Any]:
    """Every message until one that is no partial text."""
    told = Told()
    while (message := json.loads(await socket.recv()))["type"] == "partial":
        told.hear(message)
    return dict(message)


async def one_client(address: str, whole: bytes, chance: Random) -> dict[str, Any]:
    async with connect(address) as socket:
        await begun(socket, **SPEECH)

        async def send() -> None:
            for piece in cut(whole, chance, 9):
                await socket.send(piece)
                await asyncio.sleep(chance.random() / 100)
            await socket.send('{"type": "end"}')

        found, _ = await asyncio.gather(final(socket), send())
        return dict(found)


async def until_the_end(
    socket: ClientConnection, whole: bytes, stop: Callable[[], None]
) -> tuple[dict[str, Any], dict[str, Any], int]:
    """The token and the error that a socket gets when the service ends, and its close code."""
    await begun(socket, **SPEECH)
    await socket.send(whole[:8000])
    while json.loads(await socket.recv())["position"] < 4000:
        pass
    stop()
    state, error = await final(socket), json.loads(await socket.recv())
    with contextlib.suppress(ConnectionClosed):
        await socket.recv()
    return state, error, int(socket.close_code or 0)


async def scenario(run: Path, key: Path, wholes: list[bytes]) -> list[dict[str, Any]]:
    chance = Random(2)
    async with served(run, key) as (address, process):
        found = await asyncio.gather(*(one_client(address, whole, Random(i)) for i, whole in enumerate(wholes)))
        async with connect(address) as socket:
            stop = partial(process.send_signal, signal.SIGTERM)
            state, error, code = await until_the_end(socket, wholes[0], stop)
        assert (error["error"]["code"], code) == ("restarting", 1012)
        assert await asyncio.to_thread(process.wait, 30) == 0
    async with served(run, key) as (address, _), connect(address) as socket:
        with wave.open(str(run.parent / "speech.wav"), "wb") as file:
            file.setparams((1, 2, 8000, 0, "NONE", ""))
            file.writeframes(wholes[1])
        found.append(await documented_client()["transcribe"](address, str(run.parent / "speech.wav")))
        ready = await begun(socket, resume=state["token"])
        assert ready["position"] == state["position"] == 4000
        for piece in cut(wholes[0][8000:], chance, 3):
            await socket.send(piece)
        await socket.send('{"type": "end"}')
        found.append(await final(socket))
    return found


def test_a_process_streams_and_a_restart_goes_on(tmp_path: Path) -> None:
    model, key = streaming_model("hear-lstm"), tmp_path / "key"
    model.save(tmp_path / "model.safetensors")
    key.write_text("0123456789abcdef" * 4)
    wholes = [sound(Random(seed), 10) for seed in range(3)]
    found = asyncio.run(scenario(tmp_path / "model.safetensors", key, wholes))
    for whole, answer in zip([*wholes, wholes[1], wholes[0]], found, strict=True):
        assert answer == {"type": "final", "position": len(whole) // 2, **final_of(model, whole)}
