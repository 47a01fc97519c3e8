"""Texts larger than memory: a file is read in segments that end where words end."""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

from unrolled.errors import UserError
from unrolled.text.files import iconv_command, not_text, reading

SEGMENT = 1 << 22  # bytes
_BLANKS = (b" ", b"\n")
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class LargeText:
    """The bytes from `begin` to `end` of a UTF-8 file, and the fingerprint of the whole file."""

    path: Path
    begin: int
    end: int
    sha256: str

    def segments(self) -> Iterator[str]:
        """The text in pieces of some megabytes; the tokens of the pieces are the tokens of the text."""
        with reading(self.path), self.path.open("rb") as file:
            for start, raw in _segments(file, self.begin, self.end):
                yield _decoded(self.path, start, raw)

    def split(self, parts: int) -> list[LargeText]:
        """The text in up to this number of parts of about equal size, cut where segments may end."""
        cuts = [self.begin]
        with reading(self.path), self.path.open("rb") as file:
            for number in range(1, parts):
                wanted = self.begin + (self.end - self.begin) * number // parts
                cuts.append(_cut(file, max(wanted, cuts[-1]), self.end))
        cuts.append(self.end)
        return [LargeText(self.path, a, b, self.sha256) for a, b in pairwise(cuts) if a < b]


@dataclass(frozen=True)
class Scan:
    """Results of reading a file once from end to end."""

    sha256: str
    begin: int  # after a byte-order mark
    end: int
    characters: int
    marks: tuple[tuple[int, int], ...]  # (bytes, characters) at the start of each segment


def scan_text(path: Path) -> Scan:
    """Read a whole file in bounded memory and check that it is UTF-8 text."""
    begin = begin_of(path)
    digest, characters, marks, blank = hashlib.sha256(_BOM[:begin]), 0, [], True
    with reading(path), path.open("rb") as file:
        end = path.stat().st_size
        for start, raw in _segments(file, begin, end):
            marks.append((start, characters))
            digest.update(raw)
            text = _decoded(path, start, raw)
            blank = blank and text.isspace()
            characters += len(text)
    not_empty(path, blank=blank)
    return Scan(digest.hexdigest(), begin, end, characters, tuple(marks))


def begin_of(path: Path) -> int:
    """The place after a byte-order mark of UTF-8; an error for UTF-16."""
    with reading(path), path.open("rb") as file:
        start = file.read(len(_BOM))
    if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        raise UserError(
            f"{path} is UTF-16, and a text of this size is read as UTF-8.",
            f"Convert it: {iconv_command(path, 'utf-16')}",
        )
    return len(_BOM) if start == _BOM else 0


def not_empty(path: Path, *, blank: bool) -> None:
    if blank:
        raise UserError(f"{path} is empty.", "Give a text file with at least a few lines.")


def marks_of(text: LargeText) -> dict[str, Any]:
    """The characters of a text, the (bytes, characters) at the start of each segment, and if all are white space."""
    characters, marks, blank = 0, [], True
    with reading(text.path), text.path.open("rb") as file:
        for start, raw in _segments(file, text.begin, text.end):
            marks.append((start, characters))
            segment = _decoded(text.path, start, raw)
            blank = blank and segment.isspace()
            characters += len(segment)
    return {"characters": characters, "marks": marks, "blank": blank}


def byte_of(path: Path, found: Scan, character: int) -> int:
    """The byte offset of a character, by its number."""
    at = max(number for number, mark in enumerate(found.marks) if mark[1] <= character)
    start, before = found.marks[at]
    stop = found.marks[at + 1][0] if at + 1 < len(found.marks) else found.end
    with reading(path), path.open("rb") as file:
        file.seek(start)
        head = file.read(stop - start).decode()
    # a line end of two bytes is one character
    text = head.replace("\r\n", "\n")[: character - before]
    place = len(text.encode())
    return start + place + (_line_ends_before(head, len(text)) if "\r\n" in head else 0)


def _line_ends_before(text: str, characters: int) -> int:
    """The number of "\\r\\n" among the first characters, each counted as one character."""
    lines, seen = 0, 0
    for piece in text.split("\r\n")[:-1]:
        seen += len(piece) + 1
        if seen > characters:
            break
        lines += 1
    return lines


def _decoded(path: Path, start: int, raw: bytes) -> str:
    if (binary := not_text(path, raw, start)) is not None:
        raise binary
    try:
        return raw.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8: byte 0x{raw[error.start]:02x} at offset {start + error.start}.",
            f"Convert it, for example: {iconv_command(path, 'latin1')}",
        ) from None


def _segments(file: IO[bytes], begin: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Each segment with its start; they join to the bytes from `begin` to `end`."""
    while begin < end:
        stop = _cut(file, begin + SEGMENT, end)
        file.seek(begin)
        yield begin, file.read(stop - begin)
        begin = stop


def _cut(file: IO[bytes], wanted: int, end: int) -> int:
    """The first place from `wanted` on where a blank or line end follows something else; `end` if there is none.

    No word and no pre-token of byte-level BPE crosses such a place (see `blocks`).
    """
    while wanted < end:
        first = max(0, wanted - 4)  # the character before may have four bytes
        file.seek(first)
        window = file.read(min(1 << 16, end - first))
        at = wanted - first
        while (at := min((i for b in _BLANKS if (i := window.find(b, at)) >= 0), default=-1)) >= 0:
            before = window[max(0, at - 4) : at].decode("utf-8", "ignore")[-1:]
            if before and not before.isspace():
                return first + at
            at += 1
        wanted = first + len(window)
    return end
