"""A peer in an environment of its own: a script that answers each line of input with a line of JSON."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any


class Peer:
    """The script in its own process; its Python must be able to import `module`."""

    def __init__(self, python: str, script: str, module: str, job: dict[str, Any]) -> None:
        self.module = module
        self.process = subprocess.Popen(
            [python, str(Path(__file__).with_name(script))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.about = self.ask(json.dumps(job))

    def ask(self, line: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        while True:
            answer = self.process.stdout.readline()
            if not answer:
                raise SystemExit(f"The peer's process ended: does `import {self.module}` work in that Python?")
            if answer.startswith("{"):
                found: dict[str, Any] = json.loads(answer)
                return found

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
