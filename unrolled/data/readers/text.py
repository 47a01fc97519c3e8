"""Reading text files, and the text every Python carries."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from pathlib import Path

from unrolled.errors import UserError
from unrolled.text.files import as_utf8, iconv_command, not_text
from unrolled.text.files import reading as reading

LARGEST = 1 << 28  # bytes that any gzip file may unpack to
PACKED = 200  # times as many as it has, beyond that: text is packed to a tenth or so
EMBEDDED = "the help pages inside Python (pydoc_data.topics)"


def read_text(path: str | Path, *, exact: bool = False) -> str:
    """The whole of a UTF-8 text file, unpacked where it ends in .gz; what cannot be one is an error that says why.

    UTF-16 is read too, where its byte order mark says so. The text has no byte order mark, and "\\n" at the end of
    lines, unless it is to be `exact`.
    """
    path = Path(path)
    with reading(path):
        raw = path.read_bytes()
    if path.suffix == ".gz":
        raw = _unpacked(path, raw)
    raw = as_utf8(raw, path)
    if not raw.removeprefix(codecs.BOM_UTF8).strip():
        raise UserError(f"{path} is empty.", "Give a text file with at least a few lines.")
    if (binary := not_text(path, raw)) is not None:
        raise binary
    try:
        text = raw.decode("utf-8" if exact else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8: byte 0x{raw[error.start]:02x} at offset {error.start}, "
            f"line {raw.count(10, 0, error.start) + 1}.",
            f"Convert it, for example: {iconv_command(path, 'latin1')}",
        ) from None
    return text if exact else text.replace("\r\n", "\n")


def _unpacked(path: Path, raw: bytes) -> bytes:
    """The content of a gzip file; a small one that would fill the memory is refused."""
    most = max(LARGEST, len(raw) * PACKED)
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as file:
            content = file.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} is not a whole gzip file: {error}.") from None
    if len(content) > most:
        raise UserError(
            f"{path} has {len(raw):,} bytes and unpacks to more than {most:,}.", "Unpack it, and look at it."
        )
    return content


def read_lines(path: str | Path) -> list[str]:
    """The lines of a text file; only a line feed ends one, so that files stay side by side."""
    lines = read_text(path).split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def embedded_text() -> str:
    """Real English prose and code of about 465,000 characters that ships with CPython."""
    from pydoc_data.topics import topics

    return "\n".join(topics[key].strip() + "\n" for key in sorted(topics))
