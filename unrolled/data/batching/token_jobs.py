"""Work on the parts of a large text, each in a process of its own."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from unrolled.config.stored import parsed
from unrolled.errors import UserError
from unrolled.text import LEVELS, Tokenizer, train_tokenizer
from unrolled.text.counted import CountedTokenizer
from unrolled.text.files import reading
from unrolled.text.large import LargeText, Scan, begin_of, not_empty, scan_text

Elsewhere = Callable[[list[dict[str, Any]]], Callable[[], None]]
"""Begin jobs; what is returned waits until their files are written."""
_ELSEWHERE: ContextVar[Elsewhere | None] = ContextVar("elsewhere", default=None)


@contextmanager
def jobs_done_by(elsewhere: Elsewhere) -> Iterator[None]:
    """A block in which `elsewhere` does the jobs of all parts."""
    token = _ELSEWHERE.set(elsewhere)
    try:
        yield
    finally:
        _ELSEWHERE.reset(token)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def scanned(path: Path, processes: int) -> Scan:
    """`scan_text`, by several processes; this one computes the digest meanwhile."""
    if processes == 1:
        return scan_text(path)
    begin = begin_of(path)
    with reading(path):
        parts = LargeText(path, begin, path.stat().st_size, "").split(processes)

    def digest() -> str:
        with reading(path), path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    found, sha256 = _made("scan", parts, {}, meanwhile=digest)
    characters, blank, marks = 0, True, list[tuple[int, int]]()
    for part in found:
        marks += [(start, characters + before) for start, before in part["marks"]]
        characters += part["characters"]
        blank = blank and part["blank"]
    not_empty(path, blank=blank)
    return Scan(sha256, begin, parts[-1].end if parts else begin, characters, tuple(marks))


def trained(text: LargeText, level: str, processes: int, **options: Any) -> Tokenizer:
    """`train_tokenizer` on a large text. Several processes count tokens; bpe counts in threads of its own."""
    kind = LEVELS[level]
    if processes == 1 or not issubclass(kind, CountedTokenizer):
        return train_tokenizer(level, text.segments(), **options)
    job = {"level": level, "lowercase": options.get("lowercase", False)}
    found, _ = _made("counts", text.split(processes), job)
    counts: Counter[str] = Counter()
    for part in found:
        counts.update(part["counts"])
    if all(part["blank"] for part in found):
        counts.clear()
    return kind.of_counts(counts, **options)


def tokenised(parts: Sequence[LargeText], files: Sequence[Path], stored: Any, dtype: str) -> None:
    """Write the ids of every part to its file."""
    run_jobs("ids", parts, files, {"tokenizer": stored, "dtype": dtype})


def _made(
    what: str, parts: Sequence[LargeText], job: dict[str, Any], meanwhile: Callable[[], str] = str
) -> tuple[list[Any], str]:
    """The findings of processes in each part, and of this one meanwhile."""
    with TemporaryDirectory() as folder:
        files = [Path(folder) / str(number) for number in range(len(parts))]
        done = run_jobs(what, parts, files, job, meanwhile)
        return [parsed(path.read_bytes()) for path in files], done


def run_jobs(
    what: str,
    parts: Sequence[LargeText],
    files: Sequence[Path],
    job: dict[str, Any],
    meanwhile: Callable[[], str] = str,
) -> str:
    """A process for every part, which writes its file: see unrolled/text/tokenise.py."""
    jobs = [
        {"make": what, "path": str(part.path), "begin": part.begin, "end": part.end, "out": str(out), **job}
        for part, out in zip(parts, files, strict=True)
    ]
    if (elsewhere := _ELSEWHERE.get()) is not None:
        wait = elsewhere(jobs)
        done = meanwhile()
        wait()
        return done
    running = []
    try:
        for one in jobs:
            process = subprocess.Popen(
                [sys.executable, "-m", "unrolled.text.tokenise"],
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": os.pathsep.join(sys.path)},
            )
            running.append(process)
            assert process.stdin is not None
            process.stdin.write(json.dumps(one))
            process.stdin.close()
        done = meanwhile()
        for process in running:
            assert process.stderr is not None
            said = process.stderr.read()
            if process.wait() == 2:
                raise UserError(said.strip())
            if process.returncode:
                raise RuntimeError(f"a process on part of {parts[0].path} failed:\n{said}")
        return done
    finally:
        for process in running:
            process.kill()
            process.wait()
            assert process.stderr is not None
            process.stderr.close()
