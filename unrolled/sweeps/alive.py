"""Signs of life: a trial whose process is gone has to be found, on this machine and on others."""

from __future__ import annotations

import json
import os
import platform
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from uuid import uuid4

from unrolled.config.stored import parsed

FOLDER = "workers"
BEAT = 10.0  # seconds between two signs of life
SILENCE = 120.0  # seconds without one, after which a process on another machine counts as gone


def this_machine() -> str:
    """The name of this machine, and of its start where it has one."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    with suppress(OSError):
        return f"{platform.node()} {boot.read_text().strip()}"
    return platform.node()


class Worker:
    """A process that runs trials: a locked file in the sweep's folder, touched every few seconds."""

    def __init__(self, folder: Path) -> None:
        self.name = f"{platform.node()}-{os.getpid()}-{uuid4().hex[:6]}"
        self.path = folder / FOLDER / self.name
        self._done = threading.Event()

    def __enter__(self) -> Worker:
        import fcntl  # does not exist on Windows

        self.path.parent.mkdir(exist_ok=True)
        self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        os.write(self._handle, json.dumps({"machine": this_machine(), "process": os.getpid()}).encode())
        with suppress(OSError):  # a disk without locks: the time of the file says enough, later
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
        self.path.unlink(missing_ok=True)
        os.close(self._handle)

    def _beat(self) -> None:
        while not self._done.wait(BEAT):
            with suppress(OSError):
                os.utime(self.path)

    def sees(self, name: str) -> bool:
        """True if the worker of this name is alive."""
        path = self.path.with_name(name)
        if name == self.name:
            return True
        try:
            about = parsed(path.read_bytes())
            if isinstance(about, dict) and about.get("machine") == this_machine():
                return _is_locked(path)
            os.utime(self.path)  # the clock of the disk, which may differ from ours
            return self.path.stat().st_mtime - path.stat().st_mtime < SILENCE
        except FileNotFoundError:
            return False
        except ValueError:  # written at this moment
            return time.time() - path.stat().st_mtime < SILENCE


def _is_locked(path: Path) -> bool:
    """True if a process holds the lock of a file, which ends with the process."""
    import fcntl

    handle = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a disk without locks
        return time.time() - path.stat().st_mtime < SILENCE
    finally:
        os.close(handle)
    return False
