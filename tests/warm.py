"""Real processes without the seconds that importing torch takes: each is forked from a server that has imported it.

The server imports what we did not write and nothing else, so a process still imports unrolled itself, in the
environment that its test gives it.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path

FORKSERVER = multiprocessing.get_context("forkserver")
FORKSERVER.set_forkserver_preload([
    "torch", "pydantic", "typer", "rich", "pyarrow", "tokenizers", "safetensors.torch", "matplotlib.figure",
])  # fmt: skip


@dataclass
class Started:
    """A process that was started: like a `subprocess.Popen` whose streams are files."""

    words: tuple[str, ...]
    process: ForkServerProcess
    folder: Path  # its stdin, stdout and stderr

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process.is_alive()

    def kill(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def finished(self, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Wait for its end."""
        self.process.join(timeout)
        if self.process.is_alive():
            self.process.kill()
            raise TimeoutError(f"{self.words} did not end within {timeout} s.")
        assert self.process.exitcode is not None
        output, errors = ((self.folder / name).read_bytes().decode() for name in ("stdout", "stderr"))
        shutil.rmtree(self.folder)
        return subprocess.CompletedProcess(self.words, self.process.exitcode, output, errors)


def start(
    *words: object, given: str | bytes = "", folder: Path | None = None, env: Mapping[str, str] | None = None
) -> Started:
    """Start `python WORDS`, where the words begin with -m unrolled or -c CODE."""
    streams = Path(tempfile.mkdtemp())
    (streams / "stdin").write_bytes(given if isinstance(given, bytes) else given.encode())
    texts = tuple(map(str, words))
    environment = {**os.environ, **(env or {})}
    process = FORKSERVER.Process(target=_child, args=(texts, streams, str(folder or Path.cwd()), environment, sys.path))
    process.start()
    return Started(texts, process, streams)


def python(*words: object, check: bool = False, **options: object) -> subprocess.CompletedProcess[str]:
    """Run `python WORDS` to its end; `options` are those of `start`."""
    done = start(*words, **options).finished()  # type: ignore[arg-type]
    if check:
        assert done.returncode == 0, done.stderr
    return done


def unrolled(*words: object, **options: object) -> subprocess.CompletedProcess[str]:
    """Run the command `unrolled WORDS` to its end."""
    return python("-m", "unrolled", *words, **options)  # type: ignore[arg-type]


def _child(words: tuple[str, ...], streams: Path, folder: str, environment: dict[str, str], path: list[str]) -> None:
    for number, (name, flags) in enumerate(
        [("stdin", os.O_RDONLY), ("stdout", os.O_WRONLY | os.O_CREAT), ("stderr", os.O_WRONLY | os.O_CREAT)]
    ):
        os.dup2(os.open(streams / name, flags), number)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "r", closefd=False)))
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)))
    sys.stderr = io.TextIOWrapper(io.BufferedWriter(io.FileIO(2, "w", closefd=False)), line_buffering=True)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:] = path
    kind, what, *rest = words
    sys.argv = ["unrolled" if kind == "-m" else "-c", *rest]
    try:
        if kind == "-m":
            assert what == "unrolled"
            from unrolled.cli import main

            main()
        else:
            exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})
    finally:
        sys.stdout.flush()
