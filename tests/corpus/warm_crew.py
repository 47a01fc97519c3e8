"""Workers without the seconds that importing torch takes: see tests/warm.py."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.warm import FORKSERVER, _child
from unrolled.corpus import crew


class Forked:
    """A worker forked from the server of tests/warm.py, with the parts of `subprocess.Popen` that a crew uses."""

    def __init__(self, command: list[str], env: dict[str, str], **_: Any) -> None:
        folder = Path(tempfile.mkdtemp())
        for name in ("stdin", "stdout"):
            os.mkfifo(folder / name)
        code = f"import runpy; runpy.run_module({command[-1]!r}, run_name='__main__')"
        self.process = FORKSERVER.Process(target=_child, args=(("-c", code), folder, str(Path.cwd()), env, sys.path))
        self.process.start()
        self.stdin, self.stdout = (folder / "stdin").open("wb"), (folder / "stdout").open("rb")

    @property
    def pid(self) -> int | None:
        return self.process.pid

    def wait(self) -> int:
        self.process.join()
        assert self.process.exitcode is not None
        return self.process.exitcode

    def kill(self) -> None:
        self.process.kill()


@contextmanager
def warm_crew(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Crews start their workers from the server."""
    patch.setattr(crew, "Popen", Forked)
    yield
