"""Streams of 16 kHz speech that one process of `unrolled serve` holds in real time, and the delay of their texts.

    python benchmarks/serve_streams.py [--seconds 20] [--streams 50 100 …] [--threads 1] [--write]

The model is a causal recognizer of the usual size, 2 × 128, whose weights are made so that it says something. The
clients are another process: each stream sends a piece of 100 ms every 100 ms, all at different moments. The delay of
a partial text is counted from the moment at which its last piece was due, not from when it was sent: a client that is
late makes the figure worse. A number of streams is held if 99 of 100 texts come within 200 ms. Without --streams the
number grows by steps until it is not held. CPU seconds are those of the process, of its threads, and of the clients.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from measure import load, machine, row, write

RATE, PIECE = 16_000, 0.1  # samples a second; seconds
LIMIT = 0.2  # seconds until a partial text must be there
STEPS = (50, 75, 100, 125, 150, 175, 200, 250, 300)


def make_model(place: Path) -> None:
    """A causal recognizer, hardly trained, whose random output layer says about as many letters a second as speech."""
    import soundfile
    import torch

    from unrolled import api

    random = np.random.default_rng(1)
    rows = []
    for number in range(16):
        name = f"{number}.wav"
        soundfile.write(place / name, 0.1 * random.standard_normal(RATE), RATE)
        rows.append(f"{name}\tone two three\n")
    (place / "train.tsv").write_text("".join(rows))
    keys = {"data.kind": "audio", "model.bidirectional": False, "train.max_steps": 2, "train.device": "cpu"}
    model: Any = api.train("recognize", train=place / "train.tsv", out=place / "run", set=keys, quiet=True)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        model.network.scores.weight.normal_(0, 1, generator=generator)
        model.network.scores.bias.zero_()
    model.save(place / "model.safetensors")


def speech(seconds: float, seed: int) -> bytes:
    """Noise that changes its loudness and colour some times a second, as 16-bit samples."""
    random = np.random.default_rng(seed)
    count = int(seconds * RATE)
    step = RATE // 8
    loud = np.repeat(random.uniform(100, 8000, count // step + 1), step)[:count]
    tone = np.repeat(random.uniform(100, 4000, count // step + 1), step)[:count]
    wave = np.sin(2 * np.pi * np.cumsum(tone) / RATE) + 0.3 * random.standard_normal(count)
    return bytes((wave * loud).clip(-32767, 32767).astype("<i2").tobytes())


async def talk(address: str, data: bytes, began: float, delays: list[float], lates: list[float]) -> str:
    """One stream in real time; the text at its end."""
    from websockets.asyncio.client import connect

    size = int(RATE * PIECE) * 2
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    async with connect(address, compression=None, max_queue=None) as client:
        await client.send(json.dumps({"type": "start", "format": "s16le", "rate": RATE}))
        assert json.loads(await client.recv())["type"] == "ready"

        async def send() -> None:
            for number, piece in enumerate(pieces):
                due = began + number * PIECE
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                lates.append(time.perf_counter() - due)
                await client.send(piece)
            await client.send('{"type":"end"}')

        sending = asyncio.create_task(send())
        while True:
            message = json.loads(await client.recv())
            now = time.perf_counter()
            if message["type"] != "partial":
                break
            last = -(-message["position"] * 2 // size) - 1  # the piece that this text waited for
            delays.append(now - (began + last * PIECE))
        await sending
        assert message["type"] == "final", message
        return str(message["text"])


async def clients(address: str, streams: int, seconds: float) -> dict[str, Any]:
    """The delays of a number of streams."""
    sounds = [speech(seconds, seed) for seed in range(min(streams, 16))]
    delays: list[float] = []
    lates: list[float] = []
    first = time.perf_counter() + 1 + streams * 0.01
    cpu = time.process_time()
    talks = [talk(address, sounds[i % len(sounds)], first + PIECE * i / streams, delays, lates) for i in range(streams)]
    texts = await asyncio.gather(*talks)
    cpu = time.process_time() - cpu
    letters = sum(map(len, texts)) / (streams * seconds)
    return {**spread(delays), "partials": len(delays), "client_late_p99": quantile(lates, 0.99), "client_cpu": cpu,
            "letters_per_second": letters}  # fmt: skip


def quantile(values: list[float], share: float) -> float:
    return round(float(np.quantile(values, share)), 4)


def spread(delays: list[float]) -> dict[str, float]:
    return {f"p{share}": quantile(delays, share / 100) for share in (50, 95, 99, 100)}


@contextmanager
def served(model: Path, threads: int) -> Iterator[tuple[str, int]]:
    """A process of the service: its address and its number."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [sys.executable, "-m", "unrolled", "serve", f"hear={model}", "--port", str(port), "--max-streams", "1000"]
    with subprocess.Popen([*words, "--threads", str(threads)], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        if "serves" not in process.stderr.readline():
            raise SystemExit(process.stderr.read())
        try:
            yield f"127.0.0.1:{port}", process.pid
        finally:
            process.terminate()
            process.wait(60)


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def batches(address: str) -> tuple[float, float]:
    """The streams in all steps so far, and the number of steps."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = {
        key: float(value)
        for key, value in re.findall(r'unrolled_batch_size_(sum|count)\{model="hear",work="stream"\} (\S+)', text)
    }
    return found["sum"], found["count"]


def measured(model: Path, streams: int, seconds: float, threads: int) -> dict[str, Any]:
    """One number of streams in a fresh process."""
    with served(model, threads) as (address, pid):
        url = f"ws://{address}/v1/models/hear/stream"
        subprocess.run([sys.executable, __file__, "--client", url, "4", "1"], check=True, capture_output=True)  # warm
        before, (streams_before, steps_before) = cpu_of(pid), batches(address)
        client = [sys.executable, __file__, "--client", url, str(streams), str(seconds)]
        done = subprocess.run(client, check=True, capture_output=True, text=True, timeout=seconds * 3 + 120)
        used, (streams_after, steps_after) = cpu_of(pid) - before, batches(address)
        found: dict[str, Any] = json.loads(done.stdout)
        per_second = round(1000 * used / (streams * seconds), 3)
        held = found["p99"] <= LIMIT
        return {"streams": streams, "held": held, **found, "cpu_ms_per_stream_second": per_second,
                "batch": round((streams_after - streams_before) / (steps_after - steps_before), 1)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--streams", type=int, nargs="*")
    parser.add_argument("--threads", type=int, default=1, help="of one computation in the service")
    parser.add_argument("--write", action="store_true", help="write results/serve_streams.json")
    parser.add_argument("--client", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.client:
        address, streams, seconds = given.client
        print(json.dumps(asyncio.run(clients(address, int(streams), float(seconds)))))
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder))
        for streams in given.streams or STEPS:
            found = measured(Path(folder) / "model.safetensors", streams, given.seconds, given.threads)
            rows.append(found)
            print(json.dumps(found), flush=True)
            if not given.streams and not found["held"]:
                break
    most = max((found["streams"] for found in rows if found["held"]), default=0)
    print(f"held in real time: {most} streams")
    if given.write:
        table = [row("streams of 16 kHz speech held in real time", str(most), "50", "150", f"p99 ≤ {LIMIT:g} s")]
        write(
            "serve_streams",
            {**machine(), "load": load(), "seconds": given.seconds, "threads": given.threads},
            table,
            rows,
        )


if __name__ == "__main__":
    main()
