"""Training n-gram models: the text, the options, and which engine does it."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from unrolled.errors import UserError
from unrolled.search.ngram import arpa
from unrolled.search.ngram.estimate import discounts_of, estimate
from unrolled.search.ngram.native import NATIVE
from unrolled.search.ngram.plain import BEGIN, END, PlainNGram, words_of

Text = str | Path | Iterable[str | Sequence[str]]
"""A file, "-" for standard input, or sentences: texts to be cut at blanks, or lists of words."""

MOST_ORDER = 20


def read_pieces(text: Text) -> tuple[str, Iterator[bytes]]:
    """A text's name, and its bytes: UTF-8, a sentence on each line."""
    if isinstance(text, str | Path):
        if str(text) == "-":
            return "standard input", arpa.checked_pieces(sys.stdin.buffer, "standard input")
        return str(text), arpa.pieces(Path(text))
    return "sentences", _joined(text)


def sentences_of(text: Text) -> Iterator[list[str]]:
    """The sentences of a text as lists of words, without blank ones."""
    for line in arpa.lines_of(read_pieces(text)[1]):
        if words := words_of(line):
            yield words


def _joined(sentences: Iterable[str | Sequence[str]]) -> Iterator[bytes]:
    for number, sentence in enumerate(sentences, 1):
        words = words_of(sentence) if isinstance(sentence, str) else sentence
        for word in words:
            if not isinstance(word, str) or words_of(word) != [word]:
                raise UserError(f"sentences:{number}: {word!r} is not one word.", "A word is a text without blanks.")
        yield (" ".join(words) + "\n").encode()


def train_plain(text: Text, order: int, prune: Sequence[int]) -> PlainNGram:
    """All counts in dictionaries."""
    name, pieces = read_pieces(text)
    sentences = []
    for number, line in enumerate(arpa.lines_of(pieces), 1):
        words = words_of(line)
        for word in words:
            if word in (BEGIN, END):
                raise UserError(
                    f"{name}:{number}: The text has the word {word}, which marks the ends of sentences.",
                    "Remove it: every line is a sentence and gets its ends.",
                )
        if words:
            sentences.append(words)
    _check_any(name, len(sentences))
    return estimate(sentences, order, prune)


def train_native(text: Text, order: int, prune: Sequence[int], memory: int, folder: Path) -> Any:
    """A KneserNey with its estimates made, to be taken as a model or as the pieces of a file."""
    name, pieces = read_pieces(text)
    trainer = NATIVE.KneserNey(order, list(prune), memory, str(folder))
    try:
        for piece in pieces:
            trainer.feed(piece)
        counts = trainer.adjust()
        _check_any(name, trainer.sentences)
        trainer.estimate([list(amounts) for amounts in discounts_of(counts, trainer.longest)])
    except RuntimeError as error:
        raise from_core(error, name) from None
    return trainer


def from_core(error: RuntimeError, name: str) -> UserError:
    """An error of the C++ core: of a line of the text, or of its scratch files."""
    if not isinstance(error, UserError) and str(error).startswith("scratch\n"):
        _, problem, fix = str(error).split("\n")
        return UserError(problem, fix)
    return arpa.at_line(error, name)


def _check_any(name: str, sentences: int) -> None:
    if sentences == 0:
        raise UserError(f"There are no words in {name}.", "Give a text with a sentence on each line.")


def check_order(order: int) -> int:
    if isinstance(order, bool) or not isinstance(order, int) or not 1 <= order <= MOST_ORDER:
        raise UserError(f"order={order!r} is not a whole number from 1 to {MOST_ORDER}.", "3 is usual.")
    return order


def check_prune(prune: Sequence[int], order: int) -> list[int]:
    """A threshold for each order; the last one given goes on."""
    given = list(prune) or [0]
    if not all(isinstance(t, int) and not isinstance(t, bool) and 0 <= t < 2**31 for t in given):
        raise UserError(f"prune={given} are not counts.", "Give whole numbers from 0 up, such as 0, 0, 1.")
    if given[0] != 0:
        raise UserError(f"prune={given} would leave words out.", "Begin with 0: all words are kept.")
    if given != sorted(given):
        raise UserError(
            f"prune={given} falls: an n-gram would be kept without what it ends in.", "Give numbers that never fall."
        )
    if len(given) > order:
        raise UserError(f"prune={given} has {len(given)} numbers for {order} orders.", "Give one for each at the most.")
    return given + [given[-1]] * (order - len(given))


_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
LEAST_MEMORY = 2**16


def check_memory(memory: int | str) -> int:
    """A number of bytes; texts may end in K, M, G or T.

    >>> check_memory("500M")
    524288000
    """
    match = re.fullmatch(r"([0-9]+)([KMGT]?)", str(memory).strip().upper())
    size = int(match[1]) * _UNITS[match[2]] if match else 0
    if size < LEAST_MEMORY:
        raise UserError(f"memory={memory!r} is not a size from 64K up.", "Use one such as 500M or 2G.")
    return size


def check_scratch(folder: str | Path | None) -> Path:
    """The folder for scratch files; none: the system's."""
    path = Path(tempfile.gettempdir() if folder is None else folder)
    if not path.is_dir():
        raise UserError(f"scratch={str(path)!r} is not a folder.", "Give one with room for the text's n-grams.")
    return path
