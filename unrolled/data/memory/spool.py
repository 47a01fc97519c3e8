"""Texts from an iterator: joined in memory, or, where they are large, in a temporary file."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from unrolled.data.memory.sources import HeldTexts
from unrolled.errors import UserError, remedy

IN_MEMORY = 64 << 20  # bytes; larger texts go to a file, as large files stay on disk
BUFFER = 4 << 20  # bytes written at once from then on


def spooled(texts: Iterable[str], kind: str) -> HeldTexts:
    """The texts one after another, each with a line end, as a file has them; they are read once."""
    digest, held, size, most, count = hashlib.sha256(), list[bytes](), 0, IN_MEMORY, 0
    with ExitStack() as cleanup:
        file: tuple[IO[bytes], Path] | None = None
        for text in texts:
            raw = _raw(text, f"{kind}, row {count}")
            digest.update(raw)
            held.append(raw)
            size, count = size + len(raw), count + 1
            if size >= most:
                with _disk():
                    file = file or _temporary(cleanup)
                    file[0].write(b"".join(held))
                held, size, most = [], 0, BUFFER
        title = f"{kind} of {count:,} {'text' if count == 1 else 'texts'}"
        if file is None:
            return HeldTexts(title, digest.hexdigest(), b"".join(held).decode())
        with _disk():
            file[0].write(b"".join(held))
            file[0].close()
        cleanup.pop_all()  # the file stays
    return HeldTexts(title, digest.hexdigest(), path=file[1])


def _raw(text: str, place: str) -> bytes:
    whole = text if text.endswith("\n") else f"{text}\n"
    try:
        return whole.replace("\r\n", "\n").encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"{place} is not whole Unicode text: a surrogate at character {error.start}.",
            "Correct it, or leave it out.",
        ) from None


def _temporary(cleanup: ExitStack) -> tuple[IO[bytes], Path]:
    """A new temporary file, which is closed and removed unless all goes well."""
    handle, name = tempfile.mkstemp(prefix="unrolled-", suffix=".txt")
    cleanup.callback(Path(name).unlink, missing_ok=True)
    return cleanup.enter_context(os.fdopen(handle, "wb")), Path(name)


@contextmanager
def _disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        fix = remedy(error) or "Set TMPDIR to a folder with room"
        raise UserError(f"The texts could not be kept on disk: {error.strerror or error}.", f"{fix}.") from None
