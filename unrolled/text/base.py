"""The tokenizer interface: ids, their spans in the text, and decoding."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from unrolled.errors import UserError
from unrolled.text.vocabulary import Vocabulary

Ids = Sequence[int] | NDArray[np.integer[Any]]


class Encoding(NamedTuple):
    """A text as ids (T,), and for each the half-open span of code points in the text that it came from (T, 2)."""

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]


class Tokenizer(ABC):
    """Text ↔ ids at one level. A tokenizer never changes: `extended` gives a new one."""

    level: ClassVar[str]

    def __init__(self, vocabulary: Vocabulary, *, lowercase: bool = False) -> None:
        self.vocabulary = vocabulary
        self.lowercase = lowercase

    @classmethod
    @abstractmethod
    def train(
        cls,
        texts: Iterable[str],
        *,
        min_count: int = 1,
        max_size: int | None = None,
        lowercase: bool = False,
        specials: Sequence[str] = (),
    ) -> Self:
        """A tokenizer for texts like these; `max_size` counts every token, the special ones too."""

    @classmethod
    @abstractmethod
    def from_json(cls, data: object) -> Self:
        """The tokenizer that `to_json` stored."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Plain JSON from which `tokenizer_from_json` makes an equal tokenizer."""

    @abstractmethod
    def encode(self, text: str) -> Encoding:
        """Ids with their spans in the text."""

    @abstractmethod
    def ids(self, text: str) -> NDArray[np.int32]:
        """The ids of `encode`, faster, without spans."""

    @abstractmethod
    def piece(self, number: int, previous: int | None) -> bytes:
        """UTF-8 bytes that an id adds to the text after the id `previous` (None at the beginning).

        The pieces of a text, joined, are the text; one piece alone can be part of a character.
        """

    @abstractmethod
    def extended(self, texts: Iterable[str]) -> Self:
        """A tokenizer that also knows what is new in these texts; old tokens keep their ids."""

    def decode(self, ids: Ids) -> str:
        """The text of the ids. Special tokens stand for no text, `<unk>` excepted."""
        pieces = []
        previous = None
        for number in self.vocabulary.check(ids).tolist():
            if not self.vocabulary.is_control(number):
                pieces.append(self.piece(number, previous))
                previous = number
        return b"".join(pieces).decode("utf-8", "replace")

    def ids_each(self, texts: Iterable[str]) -> tuple[NDArray[np.int32], list[int]]:
        """The ids of several texts end to end, and the number of those of each."""
        found = [self.ids(text) for text in texts]
        return np.concatenate(found) if found else np.empty(0, dtype=np.int32), [len(ids) for ids in found]

    def decode_each(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The text of each of several rows of ids, which are known to be of this vocabulary."""
        return [self.decode(row) for row in rows]

    def token(self, number: int) -> str:
        """One token, to be shown."""
        return self.vocabulary[number]

    @cached_property
    def shown(self) -> tuple[str, ...]:
        """`token` of every id."""
        return tuple(map(self.token, range(len(self))))

    def unknowns(self, text: str) -> int:
        """The number of tokens that this tokenizer maps to `<unk>`, a literal `<unk>` in the text included."""
        unk = self.vocabulary.unk
        return 0 if unk is None else int(np.count_nonzero(self.ids(text) == unk))

    def __len__(self) -> int:
        return len(self.vocabulary)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tokenizer):
            return NotImplemented
        return self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.level, self.lowercase, self.vocabulary))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} tokens)"

    def _prepared(self, text: str) -> str:
        """The text whose tokens are looked up: valid, and in lower case with `lowercase`."""
        check_text(text)
        return text.lower() if self.lowercase else text

    def _to_original(self, offsets: NDArray[np.int64], text: str, prepared: str) -> NDArray[np.int64]:
        """Spans in the prepared text as spans in the text it came from.

        Lower case can be longer: 'İ' becomes 'i' and a combining dot, which both point back at the one 'İ'.
        """
        if len(prepared) == len(text) or not len(offsets):
            return offsets
        origin = np.repeat(np.arange(len(text)), [len(char.lower()) for char in text])  # (code points of prepared,)
        return np.stack([origin[offsets[:, 0]], origin[offsets[:, 1] - 1] + 1], axis=1)


def check_text(text: str) -> None:
    """Check that a text is a string that UTF-8 can encode."""
    if not isinstance(text, str):
        raise UserError(f"A text must be a string, got {type(text).__name__}.")
    if text.isascii():
        return
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        problem = f"The text has half a character at position {error.start}: {text[error.start]!r}, a lone surrogate."
        raise UserError(problem, "Read the file as UTF-8 without errors='surrogateescape'.") from None


def checked_texts(texts: Iterable[str], *, lowercase: bool) -> Iterator[str]:
    """The texts one after the other, each checked, in lower case with `lowercase`."""
    if isinstance(texts, str):
        raise UserError("texts is one string; each of its characters would be a text.", "Pass a list: [text].")
    for text in texts:
        check_text(text)
        yield text.lower() if lowercase else text


def training_texts(texts: Iterable[str], *, lowercase: bool) -> Iterator[str]:
    """Checked texts; at least one must be more than white space."""
    empty = True
    for text in checked_texts(texts, lowercase=lowercase):
        empty = empty and (not text or text.isspace())
        yield text
    if empty:
        raise UserError("The training text is empty, or only white space.", "Give a text with something in it.")


_CUT = re.compile(r"(?<=\S)(?=[ \n])")


def blocks(text: str, size: int = 1 << 16) -> Iterator[tuple[int, str]]:
    """A long text in blocks of about `size` (at least 1) code points, each with its start, cut only where words end.

    No word, and no pre-token of byte-level BPE, crosses a blank that follows another character. So the tokens of the
    blocks are the tokens of the text, and Python objects exist for one block at a time.

    >>> list(blocks("one two  three", size=5))
    [(0, 'one two'), (7, '  three')]
    """
    start = 0
    while start < len(text):
        cut = _CUT.search(text, start + size)
        end = cut.start() if cut else len(text)
        yield start, text[start:end]
        start = end
