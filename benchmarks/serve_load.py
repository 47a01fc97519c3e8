"""Load for serve.py: servers in processes of their own, wrk, and clients that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Running:
    """A server: its port, the path of its route, its process."""

    port: int
    route: str
    process: subprocess.Popen[bytes]

    @property
    def resident(self) -> float:
        """Megabytes of memory."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * 4096 / 2**20

    @property
    def processor_seconds(self) -> float:
        """The time that processors have spent in the server, all of its processes."""
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it ended
                fields = stat.read_text().rpartition(")")[2].split()
                ticks += (int(fields[11]) + int(fields[12])) * (int(fields[3]) == self.process.pid)  # of its session
        return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def served(kind: str, model: Path, peer_python: str, flags: tuple[str, ...] = ()) -> Iterator[Running]:
    """A server of one model: unrolled, litserve or fastapi. It ends with the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    if kind == "unrolled":
        command = [sys.executable, "-m", "unrolled", "serve", f"m={model}", "--port", str(port), *flags]
        route = "/v1/models/m/predict"
    else:
        command = [peer_python, str(HERE / "serve_peers.py"), kind, str(model), str(port), *flags]
        route = "/predict"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    own = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}  # each its own default
    process = subprocess.Popen(command, start_new_session=True, env=own, **quiet)  # type: ignore[call-overload]
    try:
        wait_for(port, route, process)
        yield Running(port, route, process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(port: int, route: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 180
    while time.monotonic() < end:
        if process.poll() is not None:
            raise SystemExit(f"The server ended with {process.returncode}: {process.args!r}")
        try:
            ask(port, route, "a")
            return
        except urllib.error.HTTPError as error:
            raise SystemExit(f"The server answered {error.code}: {error.read().decode()}") from None
        except OSError:
            time.sleep(0.3)
    raise SystemExit("The server does not answer.")


def ask(port: int, route: str, text: Any) -> Any:
    body = json.dumps({"inputs": text}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{route}", body, {"Content-Type": "application/json", "Connection": "close"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["predictions"]


def wrk(server: Running, texts: list[str], clients: int, seconds: float) -> dict[str, float]:
    """Requests a second and times to answer for a number of clients that each keep a connection."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as bodies:
        bodies.writelines(json.dumps({"inputs": text}) + "\n" for text in texts)
        bodies.flush()
        flags = ["-t1", f"-c{clients}", f"-d{max(1, round(seconds))}s", "--timeout", "20s"]
        url = f"http://127.0.0.1:{server.port}{server.route}"
        spent = -server.processor_seconds
        command = ["wrk", *flags, "-s", str(HERE / "serve.lua"), url, "--", bodies.name]
        found = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60)
    if found.returncode:
        raise SystemExit(f"wrk failed: {found.stderr or found.stdout}")
    facts: dict[str, float] = json.loads(found.stdout.splitlines()[-1])
    spent += server.processor_seconds
    each = 1000 * spent / max(1.0, facts["requests"])
    return {"clients": clients, "rps": facts["requests"] / facts["seconds"], "processor_ms": each, **facts}


def packed(server: Running, inputs: Any) -> bytes:
    body = json.dumps({"inputs": inputs}).encode()
    head = f"POST {server.route} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def answered(reader: asyncio.StreamReader) -> tuple[int, bytes, bool]:
    """Status, body, and whether the connection ends after it."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
    return int(head.split()[1]), await reader.readexactly(length), "connection: close" in head


@dataclass
class Soak:
    """Clients of many manners on one server, and what they saw. Every answer is compared with the expected one."""

    server: Running
    texts: list[str]
    expected: list[Any]
    end: float
    seen: Counter[str] = field(default_factory=Counter)
    drained: bool = False  # the server was told to end: a refused connection is no loss

    async def run(self, clients: int) -> None:
        tasks = [asyncio.create_task(self.client(random.Random(seed))) for seed in range(clients)]
        await asyncio.gather(*tasks)

    async def client(self, chance: random.Random) -> None:
        while time.monotonic() < self.end:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
            except OSError:
                if self.drained:
                    return
                self.seen["lost"] += 1
                await asyncio.sleep(0.1)
                continue
            try:
                await self.connection(reader, writer, chance)
            except (ConnectionError, asyncio.IncompleteReadError):
                self.seen["closed while it drained" if self.drained else "lost"] += 1
            writer.close()

    async def connection(self, reader: Any, writer: Any, chance: random.Random) -> None:
        """Requests on one connection until it ends."""
        while time.monotonic() < self.end:
            manner = chance.choices(("good", "many", "cancel", "bad", "slow"), (80, 8, 5, 4, 3))[0]
            if manner == "bad":
                bad = chance.choice(({"x": 1}, 7, [], [None], "x" * 200_000))
                writer.write(packed(self.server, bad))
                status, _, last = await answered(reader)
                self.seen["bad refused" if 400 <= status < 500 else "bad answered"] += 1
            elif manner == "cancel":
                writer.write(packed(self.server, self.texts))
                await asyncio.sleep(chance.random() * 0.02)
                self.seen["cancelled"] += 1
                return
            else:
                count = 1 if manner == "good" else 8
                places = [chance.randrange(len(self.texts)) for _ in range(count)]
                last = await self.good(reader, writer, places, slow=manner == "slow")
            if last:
                return
            await asyncio.sleep(chance.random() * 0.02)

    async def good(self, reader: Any, writer: Any, places: list[int], slow: bool) -> bool:
        data = packed(self.server, [self.texts[place] for place in places])
        if slow:  # the request comes in pieces, and the answer is read late
            for at in range(0, len(data), len(data) // 4 + 1):
                writer.write(data[at : at + len(data) // 4 + 1])
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.3)
        else:
            writer.write(data)
        status, body, last = await answered(reader)
        if status != 200:
            self.seen[f"status {status}"] += 1
            return last
        right = json.loads(body)["predictions"] == [self.expected[place] for place in places]
        self.seen["right" if right else "wrong"] += 1
        return last


async def soak(server: Running, model: Path, work: Soak, clients: int, reload_every: float) -> dict[str, Any]:
    """Run the clients while the model's file is replaced again and again; memory after a quarter and at the end."""
    began, memory = time.monotonic(), [server.resident]
    running = asyncio.create_task(work.run(clients))
    reloads, next_reload = 0, began + reload_every
    while not running.done():
        await asyncio.sleep(0.5)
        if time.monotonic() > next_reload:
            copy = model.with_suffix(".copy")
            shutil.copyfile(model, copy)
            copy.replace(model)
            reloads, next_reload = reloads + 1, next_reload + reload_every
        memory.append(server.resident)
    await running
    quarter = len(memory) // 4
    return {
        "seconds": round(time.monotonic() - began, 1),
        "clients": clients,
        "reloads": reloads,
        "seen": dict(work.seen),
        "resident_mb": {
            "after a quarter": round(max(memory[: quarter + 1]), 1),
            "end": round(memory[-1], 1),
            "most": round(max(memory), 1),
        },
    }


async def ended(server: Running, work: Soak, clients: int, after: float) -> dict[str, Any]:
    """SIGTERM under load: what became of every request."""
    running = asyncio.create_task(work.run(clients))
    await asyncio.sleep(after)
    work.drained = True
    began = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    code = await asyncio.to_thread(server.process.wait, 60)
    work.end = 0.0
    await running
    return {"seconds to end": round(time.monotonic() - began, 2), "exit code": code, "seen": dict(work.seen)}
