"""Packed files: gzip (.gz) and Zstandard (.zst), unpacked in bounded memory."""

from __future__ import annotations

import gzip
import io
import shlex
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from unrolled.errors import UserError

UNPACK = {".gz": "gzip -dc", ".zst": "zstd -dc"}  # the suffixes, and the shell command that unpacks each
LARGEST = 1 << 28  # bytes that any packed file may expand to
RATIO = 200  # largest expansion beyond that; text shrinks to about a tenth
NAMES = {".gz": "gzip", ".zst": "Zstandard"}


def is_packed(path: Path) -> bool:
    return path.suffix in UNPACK


def most_of(size: int) -> int:
    """The bytes that a packed file of a size may expand to."""
    return max(LARGEST, size * RATIO)


def too_large(path: Path, size: int) -> UserError:
    """The error of a small file that expands enormously."""
    return UserError(
        f"{path} has {size:,} bytes and unpacks to more than {most_of(size):,}.", "Unpack it and check its content."
    )


def unpacked(path: Path, raw: bytes) -> bytes:
    """The content of a packed file; a small file that expands enormously is an error."""
    most = most_of(len(raw))
    with unpacking(path, io.BytesIO(raw)) as file:
        content: bytes = file.read(most + 1)
    if len(content) > most:
        raise too_large(path, len(raw))
    return content


@contextmanager
def unpacking(path: Path, packed: IO[bytes]) -> Iterator[IO[bytes]]:
    """The content of an open packed file, unpacked as it is read; damage is an error."""
    try:
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=packed) as file:
                yield cast(IO[bytes], file)
            return
        with _zstandard(packed) as stream:
            yield stream
    except (OSError, EOFError, zlib.error) as error:
        reason = str(error).rstrip(".")
        raise UserError(f"{path} is not a whole {NAMES[path.suffix]} file: {reason}.") from None


def _zstandard(packed: IO[bytes]) -> IO[bytes]:
    import pyarrow

    stream: Any = pyarrow.CompressedInputStream(pyarrow.PythonFile(packed, mode="r"), "zstd")
    return io.BufferedReader(stream)


def shell_command(path: Path) -> str:
    """The shell command that writes the content of a packed file to standard output."""
    return f"{UNPACK[path.suffix]} {shlex.quote(str(path))}"
