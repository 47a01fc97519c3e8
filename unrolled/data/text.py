"""Reading text files, and the text every Python carries."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unrolled.errors import UserError

EMBEDDED = "the help pages inside Python (pydoc_data.topics)"


def read_text(path: str | Path) -> str:
    """The whole of a UTF-8 text file, unpacked where it ends in .gz; what cannot be one is an error that says why."""
    path = Path(path)
    with reading(path):
        raw = path.read_bytes()
    if path.suffix == ".gz":
        try:
            raw = gzip.decompress(raw)
        except (OSError, EOFError, zlib.error) as error:
            raise UserError(f"{path} is not a whole gzip file: {error}.") from None
    if not raw.strip():
        raise UserError(f"{path} is empty.", "Give a text file with at least a few lines.")
    if (zero := raw.find(b"\0")) >= 0:
        raise UserError(f"{path} is not text: it has a zero byte at offset {zero}.", "Give a UTF-8 text file.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8: byte 0x{raw[error.start]:02x} at offset {error.start}, "
            f"line {raw.count(10, 0, error.start) + 1}.",
            f"Convert it, for example: iconv -f latin1 -t utf-8 {path} > converted.txt",
        ) from None
    return text.replace("\r\n", "\n")


@contextmanager
def reading(path: Path, kind: str = "UTF-8 text file") -> Iterator[None]:
    """Says why a file cannot be read, where it cannot."""
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"{path} does not exist.", f"Give the path of a {kind}.") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a directory.", f"Give the path of a {kind}.") from None
    except PermissionError:
        raise UserError(f"{path} cannot be read: permission denied.", f"Try: chmod u+r {path}") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from None


def embedded_text() -> str:
    """Real English prose and code of about 465,000 characters that ships with CPython."""
    from pydoc_data.topics import topics

    return "\n".join(topics[key].strip() + "\n" for key in sorted(topics))
