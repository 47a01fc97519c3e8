"""The answers of a run that is not over, in a folder beside the file that they will become.

OUT.part/ holds `answers`, which grows; `progress.json`, how much of it is certain; `job.json`, what decides the
answers; and `lock`, held by the process that writes. A run that goes on cuts `answers` back to what is certain.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from unrolled.config.stored import parsed
from unrolled.errors import UserError, remedy

JOB, PROGRESS, ANSWERS, LOCK = "job.json", "progress.json", "answers", "lock"
FORMAT = 1
GO_ON = "Give the same command to go on."
OURS = {name for own in (JOB, PROGRESS, ANSWERS, LOCK) for name in (own, f"{own}.new")}
SECONDS = 1.0  # between two records of the progress


@dataclass
class Certain:
    """The part of a run that is done."""

    inputs: int = 0
    bytes: int = 0
    failed: int = 0
    columns: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    notes: dict[str, int] = field(default_factory=dict)
    done: bool = False


class PartFile:
    """The answers so far of a run that writes to `out`."""

    def __init__(self, out: Path) -> None:
        self.out, self.folder = out, out.with_name(f"{out.name}.part")
        self.certain, self.total = Certain(), 0
        self.seed: int | None = None
        self._recorded = 0.0
        self._answers: Any = None
        self._lock: Any = None

    @classmethod
    def opened(cls, out: Path, identity: Mapping[str, Any], *, force: bool) -> Self:
        """The part of this run: a new one, or that which a stopped run left.

        force: `out` may be replaced, and so may what another run left.
        """
        part = cls(out)
        if out.is_dir():
            raise UserError(f"{out} is a folder.", "Give the name of a file.")
        known = part.folder.exists()
        if known:
            part._check_ours()
        elif out.exists() and not force:
            raise part._exists()
        try:
            with part.writing():
                part.folder.mkdir(parents=True, exist_ok=True)
                part._take()
            if known and not part._goes_on(identity, force=force):
                known = False
            if out.exists() and not force and not (known and part.certain.done):
                raise part._exists()
            with part.writing():
                if not known:
                    part._begin(identity)
                elif not part.certain.done:
                    part._cut()
        except BaseException:
            part.close()
            raise
        return part

    def _check_ours(self) -> None:
        """Refuse a folder with other files."""
        if others := {one.name for one in self.folder.iterdir()} - OURS:
            raise UserError(
                f"{self.folder} holds {min(others)!r}, and answers on their way to {self.out} would go there.",
                "Move it away, or choose another name for --out.",
            )

    def _exists(self) -> UserError:
        return UserError(f"{self.out} exists already.", "Choose another name, or give --force to replace it.")

    def _take(self) -> None:
        """Hold the lock, which ends with the process."""
        self._lock = (self.folder / LOCK).open("w")
        try:
            import fcntl
        except ModuleNotFoundError:  # Windows
            return
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(
                f"Another process writes {self.folder}.", "Wait for it, or choose another name for --out."
            ) from None

    def _goes_on(self, identity: Mapping[str, Any], *, force: bool) -> bool:
        """True if the folder is of this run; False if it may begin again."""
        try:
            job, progress = (parsed((self.folder / name).read_bytes()) for name in (JOB, PROGRESS))
            certain = Certain(**progress)
            whole = job["format"] == FORMAT and isinstance(job["identity"], dict)
            answers = self.folder / ANSWERS
            whole = whole and (certain.done or answers.stat().st_size >= certain.bytes)
        except FileNotFoundError:  # it was stopped before the first record
            return False
        except (OSError, ValueError, KeyError, TypeError):
            whole = False
        if not whole:
            if force:
                return False
            raise UserError(f"{self.folder} is damaged.", f"Remove it to begin again: rm -r {self.folder}")
        changed = [name for name in identity if job["identity"].get(name) != identity[name]]
        if changed and force:
            return False
        if changed:
            what = " and ".join(f"another {name}" if name != "options" else "other options" for name in changed)
            raise UserError(
                f"{self.folder} was begun with {what}.",
                "Give the command that began it, another --out, or --force to begin again.",
            )
        self.certain, self.total, self.seed = certain, int(job["total"]), job["seed"]
        return True

    def _begin(self, identity: Mapping[str, Any]) -> None:
        for name in (JOB, PROGRESS):
            (self.folder / name).unlink(missing_ok=True)
        self._answers = (self.folder / ANSWERS).open("wb")
        self._identity = identity

    def counted(self, total: int, seed: int | None) -> None:
        """The number of inputs is known, and the seed of those that are drawn: from now on the run can go on."""
        self.total, self.seed = total, seed
        self.record()
        with self.writing():
            self._write(JOB, {"format": FORMAT, "total": total, "seed": seed, "identity": self._identity})

    def _cut(self) -> None:
        self._answers = (self.folder / ANSWERS).open("r+b")
        self._answers.truncate(self.certain.bytes)
        self._answers.seek(self.certain.bytes)

    def append(self, text: str, certain: Certain) -> None:
        """Add answers; `certain` is what is done with them."""
        content = text.encode(errors="backslashreplace")  # of half a pair of surrogates
        with self.writing():
            self._answers.write(content)
        certain.bytes = self.certain.bytes + len(content)
        self.certain = certain
        if time.monotonic() - self._recorded >= SECONDS:
            self.record()

    def record(self) -> None:
        """Put what is done on the disk."""
        with self.writing():
            self._answers.flush()
            os.fsync(self._answers.fileno())
            self._write(PROGRESS, asdict(self.certain))
        self._recorded = time.monotonic()

    def finish(self) -> None:
        """Put the answers in their place, and remove the folder."""
        if not self.certain.done:
            self.certain.done = True
            self.record()
            self._answers.close()
        with self.writing():
            if (self.folder / ANSWERS).exists():
                (self.folder / ANSWERS).replace(self.out)
                _sync(self.out.parent)
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def close(self) -> None:
        """Let the next process go on; what it could not go on from is removed."""
        if self._answers is not None and not (self.folder / JOB).exists():
            shutil.rmtree(self.folder, ignore_errors=True)
        for file in (self._answers, self._lock):
            if file is not None:
                with suppress(OSError):  # what is not certain may be lost
                    file.close()

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        beside = self.folder / f"{name}.new"
        with beside.open("w") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.folder / name)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Turn errors of the disk into messages."""
        try:
            yield
        except OSError as error:
            first = remedy(error)
            fix = f"{first}, then give the same command to go on." if first else "Choose another place."
            raise UserError(f"{self.folder} could not be written: {error.strerror or error}.", fix) from None


def _sync(folder: Path) -> None:
    """Put the names in a folder on the disk, to survive a power cut."""
    if os.name == "nt":  # there a folder cannot be opened
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
