"""Text files, and the text embedded in Python."""

from __future__ import annotations

import codecs
from pathlib import Path

from unrolled.data.memory.held import texts_of
from unrolled.errors import UserError
from unrolled.text.files import as_utf8, iconv_command, not_text
from unrolled.text.files import reading as reading
from unrolled.text.globs import files_of, is_several
from unrolled.text.packed import is_packed, unpacked

EMBEDDED = "the help pages inside Python (pydoc_data.topics)"


def read_text(path: str | Path, *, exact: bool = False) -> str:
    """Read a whole UTF-8 text: a file, or all files of a folder or a pattern, one after another.

    A file that ends in .gz or .zst is unpacked. UTF-16 with a byte order mark is read too. Unless `exact`, the byte
    order mark is removed and line ends become "\\n".
    """
    if (given := texts_of(path)) is not None:
        return given.whole
    if not is_several(path):
        return _text_of(Path(path), exact=exact)
    texts = (_text_of(file, exact=exact) for file in files_of(path))
    return "".join(text if text.endswith("\n") else f"{text}\n" for text in texts)


def _text_of(path: Path, *, exact: bool) -> str:
    with reading(path):
        raw = path.read_bytes()
    if is_packed(path):
        raw = unpacked(path, raw)
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


def read_lines(path: str | Path) -> list[str]:
    """The lines of a text file. Only a line feed ends a line, so that parallel files stay aligned."""
    lines = read_text(path).split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def embedded_text() -> str:
    """Real English prose and code of about 465,000 characters that ships with CPython."""
    from pydoc_data.topics import topics

    return "\n".join(topics[key].strip() + "\n" for key in sorted(topics))
