"""Recordings and pictures on disk: files, or members of zip archives, named by the rows of a manifest."""

from __future__ import annotations

import functools
import hashlib
import threading
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from unrolled.errors import UserError, unknown_name
from unrolled.text.files import is_file, reading

AUDIO = (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aiff", ".aif", ".au", ".caf", ".w64")
IMAGES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".pgm", ".pbm", ".ppm", ".pnm")
ARRAYS = (".npy",)
RAW = (".raw", ".pcm", ".s16")  # 16-bit samples of one channel without a header
_OPENING = threading.Lock()


@dataclass(frozen=True)
class Medium:
    """A file, or with `member` a file inside a zip archive; `place` is the row that names it, or ""."""

    path: Path
    member: str = ""
    place: str = ""

    @classmethod
    def named(cls, name: str, folder: Path | None = None, place: str = "") -> Medium:
        """The file of a name: a path, relative to `folder`, that may lead into a zip archive.

        >>> Medium.named("a.wav", Path("data"))
        Medium(path=PosixPath('data/a.wav'), member='', place='')
        """
        path = Path(name) if folder is None else folder / name
        for archive in path.parents:
            if archive.suffix.lower() == ".zip" and is_file(archive):
                return cls(archive, path.relative_to(archive).as_posix(), place)
        return cls(path, "", place)

    @property
    def name(self) -> str:
        """The path, with that inside an archive."""
        return str(self.path / self.member)

    def __str__(self) -> str:
        """Its place for messages: the row that names it, and its name."""
        return f"{self.place}: {self.name}" if self.place else self.name

    @property
    def suffix(self) -> str:
        return Path(self.member or self.path.name).suffix.lower()

    @property
    def kind(self) -> str:
        """audio, line (a picture of a line of text) or frames."""
        for kind, suffixes in (("audio", AUDIO), ("line", IMAGES), ("frames", ARRAYS)):
            if self.suffix in suffixes:
                return kind
        raise unknown_name(f"kind of file at {self}:", self.suffix or "no ending", [*AUDIO, *IMAGES, *ARRAYS])

    def read(self) -> bytes:
        """Its bytes."""
        before = f"{self.place}: " if self.place else ""
        if not self.member:
            try:
                with reading(self.path, "recording or picture"):
                    return self.path.read_bytes()
            except UserError as error:
                raise UserError(before + error.problem, error.fix) from None
        archive = _archive(str(self.path))
        try:
            return archive.read(self.member)
        except KeyError:
            raise UserError(f"{before}{self.path} has no member {self.member!r}.", _members(archive)) from None
        except (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, ValueError) as error:
            raise UserError(f"{self} cannot be unpacked: {error}.", "Create the archive again.") from None

    def size(self) -> int:
        """Its number of bytes, without reading them; −1 if it does not exist."""
        try:
            return _archive(str(self.path)).getinfo(self.member).file_size if self.member else self.path.stat().st_size
        except (KeyError, OSError):
            return -1

    def digest(self) -> bytes:
        """A hash of its content; empty if it cannot be read, which the reader reports."""
        try:
            if self.member:
                return _archive(str(self.path)).getinfo(self.member).CRC.to_bytes(4, "little")
            return hashlib.sha256(self.path.read_bytes()).digest()
        except (KeyError, OSError):
            return b""

    def stamp(self) -> tuple[int, int] | None:
        """The size and time of its file, to detect changes; None if it does not exist."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_size, found.st_mtime_ns


def _archive(path: str) -> zipfile.ZipFile:
    """An open archive: its list of members is read once. Threads may read members at the same time."""
    with _OPENING:
        return _opened(path, Path(path).stat().st_mtime_ns)


@functools.lru_cache(maxsize=8)
def _opened(path: str, changed: int) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise UserError(f"{path} is not a zip archive: {error}.", "Create it again.") from None


def _members(archive: zipfile.ZipFile) -> str:
    names = [name for name in archive.namelist() if not name.endswith("/")]
    return f"It has {len(names)}, the first {names[0]!r}." if names else "It is empty."
