"""The command `unrolled serve`: a real process, and its mistakes."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.test_generate import call


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_process_serves_and_ends_on_sigterm(run_of: Callable[[str], Path]) -> None:
    port = free_port()
    command = [sys.executable, "-m", "unrolled", "serve", f"mood={run_of('classify')}", "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line == f"http://127.0.0.1:{port}/  serves mood (press Ctrl-C to stop)\n"
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/models/mood/predict",
            json.dumps({"inputs": "one fine two"}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert json.load(answer)["predictions"][0]["label"] in ("good", "bad")
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        assert process.wait(timeout=30) == 0
        assert time.monotonic() - began < 20
        assert "one fine two" not in process.stderr.read()  # no user content in the log


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--host", "0.0.0.0"],
            "unrolled: Other machines reach 0.0.0.0, and there are no API keys. Give a file of keys, --api-key-file "
            "FILE; or --host 127.0.0.1, for this machine only.\n",
        ),
        (["--memory", "lots"], "unrolled: --memory 'lots' is no size. Give bytes, or with K, M or G: 500M, 2G.\n"),
        (
            ["--api-key-file", "missing.txt"],
            "unrolled: The API keys of missing.txt cannot be read: No such file or directory. Give a text file.\n",
        ),
    ],
)
def test_mistakes(run_of: Callable[[str], Path], arguments: list[str], message: str) -> None:
    code, _, errors = call("serve", f"mood={run_of('classify')}", "--port", str(free_port()), *arguments)
    assert (code, errors) == (2, message)
