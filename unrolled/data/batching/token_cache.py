"""A cache of large texts as ids on disk: tokenised once, in parallel and in bounded memory, then memory-mapped.

A cache folder holds `sources` (the scan of a file, valid for its size and time), `tokenizers` (by the text's content
and the settings) and `tokens` (by the text's content and the tokenizer). Every file is written under another name and
renamed; a lock makes a second run wait for the first. Damaged entries are rebuilt.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrolled.config.stored import parsed
from unrolled.data.batching.token_jobs import cores, scanned, tokenised, trained
from unrolled.errors import UserError, note
from unrolled.text import Tokenizer, tokenizer_from_json
from unrolled.text.files import reading
from unrolled.text.large import LargeText, Scan, byte_of

FORMAT = 1
LARGE = 64 << 20  # bytes from which a text is cached by default
WORTH_A_PROCESS = 128 << 20  # bytes
ABOUT, IDS = "about.json", "ids.bin"


def default_folder() -> Path:
    """The cache folder of this user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unrolled"


class TokenCache:
    """A folder of caches; `processes` make what is missing, by default up to one for each core."""

    def __init__(self, folder: str | Path | None = None, processes: int | None = None) -> None:
        self.folder = Path(folder) if folder is not None else default_folder()
        self.processes = processes

    def _processes(self, size: int) -> int:
        """The processes that read so many bytes; each takes a third of a second to start."""
        return self.processes or max(1, min(cores(), size // WORTH_A_PROCESS))

    def text(self, path: str | Path, valid_fraction: float | None = None) -> tuple[LargeText, LargeText | None]:
        """A file as one text, or cut in two: the second part has this share of the characters."""
        path = Path(path).absolute()
        found = self._scanned(path)
        if valid_fraction is None:
            return LargeText(path, found.begin, found.end, found.sha256), None
        cut = byte_of(path, found, round(found.characters * (1 - valid_fraction)))
        return (
            LargeText(path, found.begin, cut, found.sha256),
            LargeText(path, cut, found.end, found.sha256),
        )

    def trained(self, text: LargeText, level: str, **options: Any) -> Tokenizer:
        """The tokenizer that `train_tokenizer` makes for the text."""
        processes = self._processes(text.end - text.begin)
        key = {"level": level, **options}
        return self.tokenizer(text, key, lambda _: trained(text, level, processes, **options))

    def tokenizer(self, text: LargeText, settings: Any, make: Callable[[Iterator[str]], Tokenizer]) -> Tokenizer:
        """The tokenizer for the text with these settings (JSON); `make` trains it if it is not cached."""
        path = self.folder / "tokenizers" / f"{_key(_named(text), settings)}.json"
        with self._locked(path):
            if path.exists():
                try:
                    return tokenizer_from_json(parsed(path.read_text()))
                except (ValueError, UserError):
                    note(f"{path} is damaged and is rebuilt.")
            made = make(text.segments())
            self._write(path, json.dumps(made.to_json()))
        return made

    def ids(self, text: LargeText, tokenizer: Tokenizer) -> NDArray[np.integer]:
        """The text's ids, (tokens,), memory-mapped."""
        stored = tokenizer.to_json()
        place = self.folder / "tokens" / _key(_named(text), stored)
        with self._locked(place):
            if place.exists() and (problem := _problem(place, _smallest_type(len(tokenizer)))) is not None:
                note(f"The token cache {place} is damaged ({problem}) and is rebuilt.")
                shutil.rmtree(place)
            if not place.exists():
                self._build(place, text, stored, _smallest_type(len(tokenizer)), self.processes or cores())
        about = json.loads((place / ABOUT).read_text())
        if not about["tokens"]:
            return np.empty(0, dtype=about["dtype"])
        mapped: NDArray[np.integer] = np.memmap(place / IDS, dtype=about["dtype"], mode="r")
        return mapped

    def _build(self, place: Path, text: LargeText, stored: Any, dtype: str, processes: int) -> None:
        """Tokenise in several processes, join the parts, and rename the result."""
        beside = place.with_name(f"{place.name}.new")
        shutil.rmtree(beside, ignore_errors=True)
        with self._disk():
            beside.mkdir(parents=True)
            try:
                parts = text.split(processes)
                files = [beside / f"part-{number}" for number in range(len(parts))]
                tokenised(parts, files, stored, dtype)
                size, crc = _join(files, beside / IDS)
                about = {"format": FORMAT, "dtype": dtype, "tokens": size // np.dtype(dtype).itemsize, "crc32": crc}
                (beside / ABOUT).write_text(json.dumps(about))
                beside.rename(place)
            finally:
                shutil.rmtree(beside, ignore_errors=True)

    def _scanned(self, path: Path) -> Scan:
        with reading(path):
            now = path.stat()
        known = self.folder / "sources" / f"{_key(str(path))}.json"
        state = [FORMAT, now.st_size, now.st_mtime_ns]
        try:
            stored = parsed(known.read_text())
            if stored["state"] == state and stored.pop("check") == _key(stored):
                marks = tuple((a, b) for a, b in stored.pop("marks"))
                return Scan(marks=marks, **{k: v for k, v in stored.items() if k != "state"})
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass  # not in the cache, or damaged
        found = scanned(path, self._processes(now.st_size))
        kept = {"state": state, **vars(found)}
        self._write(known, json.dumps({**kept, "check": _key(kept)}))
        return found

    def _write(self, path: Path, content: str) -> None:
        with self._disk():
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(f"{path.name}.{os.getpid()}.new")
            beside.write_text(content)
            beside.rename(path)

    @contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        """A lock that ends with the process that holds it."""
        with self._disk():
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.with_name(f"{path.name}.lock").open("w")
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(
                f"The token cache {self.folder} could not be written: {error.strerror or error}.",
                "Give another folder: data.cache=FOLDER.",
            ) from None


def _join(files: Sequence[Path], out: Path) -> tuple[int, int]:
    """Concatenate the files and remove them; returns the size and checksum."""
    size, crc = 0, 0
    with out.open("wb") as joined:
        for path in files:
            for block in _blocks(path):
                joined.write(block)
                size, crc = size + len(block), zlib.crc32(block, crc)
            path.unlink()
        joined.flush()
        os.fsync(joined.fileno())
    return size, crc


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            yield block


def _problem(place: Path, dtype: str) -> str | None:
    """The defect of a cache entry, or None."""
    try:
        about = parsed((place / ABOUT).read_text())
        expected = about["tokens"] * np.dtype(dtype).itemsize
        if about["dtype"] != dtype:
            return f"ids of type {about['dtype']!r:.20}"
        if about["format"] != FORMAT:
            return f"format {about['format']}"
        if (size := (place / IDS).stat().st_size) != expected:
            return f"{size} bytes instead of {expected}"
        crc = 0
        for block in _blocks(place / IDS):
            crc = zlib.crc32(block, crc)
        return None if crc == about["crc32"] else "its checksum differs"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return str(error) or type(error).__name__


def _smallest_type(vocabulary: int) -> str:
    """The smallest integer type that holds every id, as NumPy names it.

    >>> _smallest_type(256), _smallest_type(257), _smallest_type(70_000)
    ('|u1', '<u2', '<i4')
    """
    return "|u1" if vocabulary <= 1 << 8 else "<u2" if vocabulary <= 1 << 16 else "<i4"


def _named(text: LargeText) -> list[Any]:
    return [FORMAT, text.sha256, text.begin, text.end]


def _key(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
