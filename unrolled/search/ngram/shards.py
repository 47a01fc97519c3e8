"""Counts of parts of a text in files: added up they are the counts of the text, to the last one.

A file of counts, `.counts`, has a line that names the format, a line of JSON, the words, each on a line in the order of
their first places in the text, and the n-grams of the highest order in suffix order: 32-bit numbers, the words from
last to first by their numbers and the count. The last 4 bytes are the CRC-32 of all before. n-grams of other parts get
other numbers for their words, so that parts are added in the order of the text: the words of the whole then have the
numbers that counting it at once gives them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from unrolled.errors import UserError
from unrolled.search.ngram.texts import Text, name_of
from unrolled.text.files import reading

FIRST = b"unrolled n-gram counts 1\n"
KIND = "file of counts"
SUFFIX = ".counts"
SPECIALS = 3  # <unk>, <s> and </s>, which stand in no list of words
BLOCK = 1 << 20
CRC = 4  # bytes


@dataclass(frozen=True)
class Counts:
    """Files of counts, in the order of the parts of the text."""

    paths: tuple[Path, ...]

    def __init__(self, *paths: str | Path) -> None:
        object.__setattr__(self, "paths", tuple(map(Path, paths)))

    @property
    def order(self) -> int:
        """The order of their n-grams."""
        orders = {path: _header(path)[0].order for path in self.paths}
        (first, order), *others = orders.items()
        for path, other in others:
            if other != order:
                raise UserError(
                    f"{path} has counts of {other}-grams, and {first} of {order}-grams.", "Count all parts alike."
                )
        return order


class Header(BaseModel):
    """The second line of a file of counts."""

    model_config = ConfigDict(strict=True, extra="forbid")

    order: int = Field(ge=1, le=255)
    sentences: int = Field(ge=0)
    tokens: int = Field(ge=0)
    longest: int = Field(ge=0)
    words: int = Field(ge=0)  # bytes


def is_counts(text: Any) -> bool:
    """True for the path of a file of counts."""
    return isinstance(text, str | Path) and Path(text).suffix == SUFFIX


def shown(text: Text | Counts) -> str:
    """The name of a text in messages, or those of its files of counts."""
    return ", ".join(map(str, text.paths)) if isinstance(text, Counts) else name_of(text)


def written_counts(trainer: Any, order: int) -> Iterator[bytes]:
    """The file of what a trainer has counted."""
    words, crc = trainer.shard_words(), 0
    header = Header(
        order=order, sentences=trainer.sentences, tokens=trainer.tokens, longest=trainer.longest, words=len(words)
    )
    for piece in (FIRST, header.model_dump_json().encode() + b"\n", words):
        crc = zlib.crc32(piece, crc)
        yield piece
    while piece := trainer.next_counts():
        crc = zlib.crc32(piece, crc)
        yield piece
    yield crc.to_bytes(CRC, "little")


def add_file(trainer: Any, path: Path) -> None:
    """Add the counts of a file to those of a trainer."""
    header, begin = _header(path)
    record = 4 * (header.order + 1)
    left = path.stat().st_size - begin - CRC
    if left < header.words or (left - header.words) % record:
        raise _damaged(path, "it was cut")
    with reading(path, KIND), path.open("rb") as file:
        crc = zlib.crc32(file.read(begin))
        words = file.read(header.words)
        crc, left = zlib.crc32(words, crc), left - header.words
        try:
            trainer.begin_shard(words, header.sentences, header.tokens, header.longest)
            while left > 0:
                block = file.read(min(left, BLOCK // record * record))
                trainer.add_counts(block)
                crc, left = zlib.crc32(block, crc), left - len(block)
        except ValueError as error:
            raise _damaged(path, f"it does not hold {error}") from None
        if crc != int.from_bytes(file.read(), "little"):
            raise _damaged(path, "its checksum differs")


def _header(path: Path) -> tuple[Header, int]:
    """The second line of a file, and the place after it."""
    with reading(path, KIND), path.open("rb") as file:
        if file.readline(len(FIRST)) != FIRST:
            raise UserError(f"{path} is not a file of counts.", "Give one that `unrolled lm count` wrote.")
        try:
            header = Header.model_validate_json(file.readline(BLOCK))
        except ValidationError:
            raise _damaged(path, "its second line cannot be read") from None
        return header, file.tell()


def _damaged(path: Path, why: str) -> UserError:
    return UserError(f"{path} is damaged: {why}.", "Count its part of the text again.")
