"""Text files, and the text embedded in Python."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from pathlib import Path

from unrolled.errors import UserError
from unrolled.text.files import as_utf8, iconv_command, not_text
from unrolled.text.files import reading as reading

LARGEST = 1 << 28  # bytes that any gzip file may expand to
PACKED = 200  # largest expansion beyond that; text shrinks to about a tenth
EMBEDDED = "the help pages inside Python (pydoc_data.topics)"


def read_text(path: str | Path, *, exact: bool = False) -> str:
    """Read a whole UTF-8 text file, decompressed if it ends in .gz.

    UTF-16 with a byte order mark is read too. Unless `exact`, the byte order mark is removed and line ends become
    "\\n".
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
    """The content of a gzip file; a small file that expands enormously is an error."""
    most = max(LARGEST, len(raw) * PACKED)
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as file:
            content = file.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} is not a whole gzip file: {error}.") from None
    if len(content) > most:
        raise UserError(
            f"{path} has {len(raw):,} bytes and unpacks to more than {most:,}.", "Unpack it and check its content."
        )
    return content


def read_lines(path: str | Path) -> list[str]:
    """The lines of a text file. Only a line feed ends a line, so that parallel files stay aligned."""
    lines = read_text(path).split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def embedded_text() -> str:
    """Real English prose and code of about 465,000 characters that ships with CPython."""
    from pydoc_data.topics import topics

    return "\n".join(topics[key].strip() + "\n" for key in sorted(topics))
