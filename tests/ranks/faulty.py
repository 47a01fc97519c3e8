"""Faults of one of several processes: callbacks that kill, stop or delay, and a command with other files for each."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from unrolled import Callback
from unrolled.training import StepInfo
from unrolled.training.watching import WatchedRun

KILL, AT = "TEST_KILL", 10  # the update at which processes are killed


def ranks_here() -> dict[str, int]:
    """The processes that the same torchrun started, by rank."""
    found: dict[str, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            words = (folder / "environ").read_bytes().split(b"\0") if parent == os.getppid() else []
        except (OSError, ValueError):  # it ended
            continue
        found |= {word[5:].decode(): int(folder.name) for word in words if word.startswith(b"RANK=")}
    return found


class Killer(Callback):
    """Kills the processes that the environment names, once: ranks such as `0 1`, or `agent`."""

    def update(self, run: WatchedRun, info: StepInfo) -> None:
        done = run.folder.with_suffix(".killed")
        if info.step != AT or done.exists():
            return
        done.touch()
        ranks, own = ranks_here(), os.environ["RANK"]
        for name in sorted(os.environ[KILL].split(), key=lambda name: name == own):  # this one last
            os.kill(os.getppid() if name == "agent" else ranks[name], signal.SIGKILL)


class Signaller(Callback):
    """Sends this process the signal of Ctrl-C."""

    def update(self, run: WatchedRun, info: StepInfo) -> None:
        if info.step == AT:
            os.kill(os.getpid(), signal.SIGINT)


class Slow(Callback):
    """Keeps the first process for longer than the others wait."""

    def update(self, run: WatchedRun, info: StepInfo) -> None:
        if info.step == AT:
            time.sleep(6)


def main(words: Sequence[str]) -> None:
    """The command, with another file of examples for every process: `{rank}` stands for its number."""
    from unrolled.cli.app import main as command

    sys.argv = ["unrolled", *(word.replace("{rank}", os.environ["RANK"]) for word in words)]
    command()


if __name__ == "__main__":
    main(sys.argv[1:])
