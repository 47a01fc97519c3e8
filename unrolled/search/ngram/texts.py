"""Texts to train n-gram models on and to score: a sentence on each line."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from unrolled.errors import UserError
from unrolled.search.ngram.arpa import checked_pieces, pieces
from unrolled.search.ngram.plain import words_of

Text = str | Path | Iterable[str | Sequence[str]]
"""A file, "-" for standard input, or sentences: texts to be cut at blanks, or lists of words."""

_ENDS = re.compile(rb"(?<![^ \t-\r])</?s>(?![^ \t-\r])")


def name_of(text: Text) -> str:
    """The name of a text in messages."""
    if not isinstance(text, str | Path):
        return "the sentences"
    return "standard input" if str(text) == "-" else str(text)


def read_lines(text: Text) -> Iterator[bytes]:
    """The text in pieces of whole lines: UTF-8, without `<s>` and `</s>`, which every sentence gets anyway."""
    name, number = name_of(text), 1
    for piece in _whole_lines(_pieces(text)):
        if b"s>" in piece and (found := _ENDS.search(piece)):
            line = number + piece.count(b"\n", 0, found.start())
            raise UserError(
                f"{name}:{line}: The text has the word {found[0].decode()}, which marks the ends of sentences.",
                "Remove it: every line is a sentence and gets its ends.",
            )
        number += piece.count(b"\n")
        yield piece


def _pieces(text: Text) -> Iterator[bytes]:
    if not isinstance(text, str | Path):
        return _joined(text)
    if str(text) == "-":
        return checked_pieces(sys.stdin.buffer, "standard input")
    return pieces(Path(text))


def _joined(sentences: Iterable[str | Sequence[str]]) -> Iterator[bytes]:
    for number, sentence in enumerate(sentences, 1):
        words = words_of(sentence) if isinstance(sentence, str) else sentence
        for word in words:
            if not isinstance(word, str) or words_of(word) != [word]:
                raise UserError(f"the sentences:{number}: {word!r} is not one word.", "A word is text without blanks.")
        yield (" ".join(words) + "\n").encode()


def _whole_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    rest: list[bytes] = []
    for piece in pieces:
        end = piece.rfind(b"\n") + 1
        if end:
            yield b"".join([*rest, piece[:end]])
            rest = []
        rest.append(piece[end:])
    if last := b"".join(rest):
        yield last
