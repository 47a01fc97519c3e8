"""Several processes of one sweep on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from unrolled.errors import UserError, note

COMMAND = [sys.executable, "-m", "unrolled.sweeps"]
LOOK = 0.5  # seconds between two looks at the processes
PATIENCE = 60.0  # seconds that processes get to save their trials
RESTARTS = 3  # of killed processes, for each that was asked for


class Processes:
    """Processes that run trials, each in a session of its own: Ctrl-C reaches them through this one, once."""

    def __init__(self, number: int, job: Mapping[str, Any], gpus: int) -> None:
        self.job, self.gpus, self.restarts = job, gpus, RESTARTS * number
        self.running = [self._start(index) for index in range(number)]

    def _start(self, index: int) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=environment(index, self.gpus),
        )
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it ended already: its exit code and its last line say why
            process.stdin.write(json.dumps(self.job))
            process.stdin.close()
        return process

    def wait(self, look: Callable[[], None]) -> None:
        """Wait for the end of all, calling `look` now and then; a process that was killed gets a successor."""
        try:
            while True:
                self._replace_killed()
                if all(process.poll() is not None for process in self.running):
                    break
                time.sleep(LOOK)
                look()
        finally:
            self.stop()
            look()
        self._raise()

    def _replace_killed(self) -> None:
        for index, process in enumerate(self.running):
            if (process.poll() or 0) < 0 and self.restarts:
                self.restarts -= 1
                note(f"A process of the sweep was killed by signal {-process.returncode}; another one begins.")
                self.running[index] = self._start(index)

    def stop(self) -> None:
        """Let the processes save their trials and end."""
        for process in self.running:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        end = time.monotonic() + PATIENCE
        for process in self.running:
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _raise(self) -> None:
        """The error of the first process that ended with one."""
        for process in self.running:
            assert process.stdout is not None
            said = process.stdout.read().strip().rpartition("\n")[2]
            if process.returncode == 2 and said.startswith("["):
                raise UserError(*json.loads(said))
            if process.returncode not in (0, 130, 143):
                raise UserError(f"A process of the sweep ended with exit code {process.returncode}.", "See above.")


def environment(index: int, gpus: int) -> dict[str, str]:
    """The environment of a process: of several GPUs it sees one.

    >>> environment(3, gpus=2)["CUDA_VISIBLE_DEVICES"]
    '1'
    """
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    names = [name for name in given if name] or [str(number) for number in range(gpus)]
    return {**os.environ, **({"CUDA_VISIBLE_DEVICES": names[index % gpus]} if gpus > 1 else {})}
