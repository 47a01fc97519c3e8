"""The folder of a run: its files, its lock, and the remains of a killed start."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from unrolled.errors import UserError, note
from unrolled.training import checkpoint
from unrolled.training.checkpoint import disk_errors

CONFIG, METRICS, SAMPLES, CURVES = "config.toml", "metrics.jsonl", "samples.jsonl", "curves.png"
BEST, LAST, INIT = "best.safetensors", "last.safetensors", "init.safetensors"
LOCK = ".lock"
UNFINISHED = (*(f"{name}.new" for name in (CONFIG, CURVES, BEST, LAST, INIT)), checkpoint.NEW)
STARTED = {LOCK, INIT, *UNFINISHED}  # possible remains of a run killed before it wrote its config


def check_free(out: Path) -> None:
    """Check that a folder can hold a new run: empty, or with the remains of a killed start."""
    if not out.exists():
        return
    with disk_errors(out):
        found = {path.name for path in out.iterdir()} if out.is_dir() else {out.name}
    if CONFIG in found:
        raise UserError(
            f"{out} exists already.", f"Choose another --out, or resume that run: unrolled train --resume {out}"
        )
    if found - STARTED:
        raise UserError(f"{out} exists and is not a run folder.", "Choose another --out.")


def check_run(folder: Path) -> None:
    """Check that a folder holds a run that can resume."""
    if (folder / CONFIG).is_file():
        return
    if not folder.exists():
        raise UserError(f"{folder} does not exist.", "Give a folder that `unrolled train` made.")
    if not folder.is_dir():
        raise UserError(
            f"{folder} is a file, and --resume takes a run folder.",
            f"To start a new run from a model: unrolled train TASK --init {folder}",
        )
    if {path.name for path in folder.iterdir()} <= STARTED:
        raise UserError(
            f"{folder} was stopped before its run began: there is nothing to resume.",
            f"Start it again: unrolled train TASK --out {folder}",
        )
    raise UserError(f"{folder} is not a run folder: it has no {CONFIG}.", "Give a folder that `unrolled train` made.")


def new_folder(out: Path | None, name: str) -> Path:
    """Make the folder of a new run: `out`, which must not hold a run, or the first free runs/NAME-1, -2, …"""
    if out is not None:
        check_free(out)
        return _made(out, exist_ok=True)
    number = 1
    while True:
        try:
            return _made(Path("runs", f"{name}-{number}"), exist_ok=False)
        except FileExistsError:  # another process took this number
            number += 1


def _made(folder: Path, *, exist_ok: bool) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=exist_ok)
    except FileExistsError:
        if not exist_ok:
            raise
        raise UserError(f"{folder} exists and is not a folder.", "Choose another --out.") from None
    except OSError as error:
        raise UserError(f"{folder} cannot be created: {error.strerror}.", "Choose another --out.") from None
    return folder


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the folder against other processes. The lock ends with the process, even if it is killed."""
    handle = _lock(folder)
    try:
        yield
    finally:
        with suppress(OSError):  # the lock does not need the file
            (folder / LOCK).unlink()
        os.close(handle)


def _lock(folder: Path) -> int:
    """The open, locked file. The file of a killed process is not locked."""
    import fcntl  # does not exist on Windows

    path = folder / LOCK
    while True:
        with disk_errors(folder, then="try again, or copy the run to another place."):
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(handle), path.stat()):
                break
            os.close(handle)  # the owner just removed the file: try the next one
        except BlockingIOError:
            owner = os.pread(handle, 200, 0).decode(errors="replace").strip() or "another process"
            os.close(handle)
            raise UserError(
                f"{folder} is in use: {owner} is training into it.",
                "Wait until it ends, or stop it and resume the run. For a second run choose another --out.",
            ) from None
        except FileNotFoundError:
            os.close(handle)
        except OSError as error:
            note(f"{folder} is on a disk without locks ({error.strerror}): do not train into it twice at once.")
            break
    with suppress(OSError):  # on a full disk the owner stays unknown to others
        os.truncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {platform.node()}\n".encode(), 0)
    return handle


def clear(folder: Path, names: Iterable[str] = UNFINISHED) -> None:
    """Remove unfinished files of a killed process; the complete ones are beside them, or are written again."""
    for path in (folder / name for name in names):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
