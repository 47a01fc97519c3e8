"""The lines of a text file, one after the other: a file may be larger than memory."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from unrolled.config import in_memory
from unrolled.data.readers.text import read_lines
from unrolled.errors import UserError
from unrolled.text.files import iconv_command, not_text, opened
from unrolled.text.globs import files_of, is_several
from unrolled.text.packed import is_packed, most_of, too_large

HEAD = 1 << 23  # bytes that show how a file is written
OTHERS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # that of UTF-32 begins with one of them


class TextLines:
    """The lines of a UTF-8 file, unpacked if it ends in .gz or .zst; each iteration reads the file anew.

    The lines and errors are those of `read_lines`, also of several files and of texts in memory. A file in UTF-16 is
    read as a whole.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def head(self) -> list[str]:
        """The lines in the first megabytes."""
        return self._start[0]

    @property
    def short(self) -> bool:
        """True if the file has no line after the head."""
        return self._start[1]

    @cached_property
    def _start(self) -> tuple[list[str], bool]:
        lines, size = list[str](), 0
        for line in self:
            if size > HEAD:
                return lines, False
            lines.append(line)
            size += len(line) + 1
        return lines, True

    def __iter__(self) -> Iterator[str]:
        if in_memory(self.path):
            yield from read_lines(self.path)
        elif is_several(self.path):
            for file in files_of(self.path):
                yield from TextLines(file)
        else:
            yield from self._of_file()

    def _of_file(self) -> Iterator[str]:
        with opened(self.path, "UTF-8 text file") as file:
            start: bytes = file.peek(4)[:4]  # type: ignore[attr-defined]
            if start.startswith(OTHERS):
                yield from read_lines(self.path)
                return
            offset = len(file.read(len(codecs.BOM_UTF8))) if start.startswith(codecs.BOM_UTF8) else 0
            size = self.path.stat().st_size
            most, blank = most_of(size) if is_packed(self.path) else None, True
            for number, raw in enumerate(file, 1):
                blank = blank and not raw.strip()
                yield self._decoded(raw, number, offset)
                offset += len(raw)
                if most is not None and offset > most:
                    raise too_large(self.path, size)
            if blank:
                raise UserError(f"{self.path} is empty.", "Give a text file with at least a few lines.")

    def _decoded(self, raw: bytes, number: int, offset: int) -> str:
        if b"\0" in raw and (binary := not_text(self.path, raw, offset)) is not None:
            raise binary
        try:
            line = raw.decode()
        except UnicodeDecodeError as error:
            raise UserError(
                f"{self.path} is not UTF-8: byte 0x{raw[error.start]:02x} at offset {offset + error.start}, "
                f"line {number}.",
                f"Convert it, for example: {iconv_command(self.path, 'latin1')}",
            ) from None
        return line[:-2] if line.endswith("\r\n") else line.removesuffix("\n")
