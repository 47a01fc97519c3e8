r"""ARPA files: n-gram models as text, a probability, the words and a back-off on each line.

    \data\
    ngram 1=5
    ngram 2=3

    \1-grams:
    -0.6    the    -0.3
    …
    \end\

Numbers are log10. Words stand between blanks or tabs. What comes before \data\ is not read.
"""

from __future__ import annotations

import codecs
import gzip
import math
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, NoReturn, cast

import numpy as np

from unrolled.errors import UserError, note
from unrolled.search.ngram.plain import BEGIN, END, UNKNOWN, PlainNGram
from unrolled.text.files import iconv_command, new_file, opened

PIECE = 1 << 20  # bytes
MOST_ORDER = 255
LONGEST = 300  # characters of a message about a line
MOST_SUM = 1.01  # of unigrams, which files round to a few digits
LARGEST = 1000.0  # a log10 that is meant
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
GZIP = b"\x1f\x8b"
_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")  # all control characters but white space and escape
_BLANKS = re.compile(r"[ \t]+")


def pieces(path: Path, kind: str = "text file") -> Generator[bytes, None, None]:
    """The bytes of a file, checked to be UTF-8 text, unpacked where its name ends in .gz."""
    with opened(path, kind) as file:
        yield from checked_pieces(file, str(path))


def most_ngrams(path: Path) -> int:
    """So many lines a file of its size may have: room is made for no more, whatever its header says."""
    size = path.stat().st_size if path.is_file() else 0
    return size // 8 * (10 if path.suffix == ".gz" else 1)


def checked_pieces(file: IO[bytes], name: str) -> Iterator[bytes]:
    """The bytes of an open file, checked to be UTF-8 text; a byte order mark at its start is left out."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    lines = 0
    waiting = b""  # the beginning of a character whose end is in the next piece
    start = file.read(len(codecs.BOM_UTF8)).removeprefix(codecs.BOM_UTF8)
    utf16 = codecs.getincrementaldecoder("utf-16")() if start[:2] in UTF16 else None
    while True:
        read = file.read(PIECE)
        piece, start = start + read, b""
        if utf16 is not None:
            try:
                piece = utf16.decode(piece, final=not read).encode()
            except UnicodeDecodeError:
                raise UserError(f"{name}: The text is not whole UTF-16.", "Save it again, as UTF-8.") from None
            if read and not piece:
                continue
        try:
            decoder.decode(piece, final=not piece)
        except UnicodeDecodeError as error:
            _check_is_text(piece, name, lines)
            place = waiting + piece
            line = lines + place.count(b"\n", 0, error.start) + 1
            raise UserError(
                f"{name}:{line}: The text is not UTF-8: byte 0x{place[error.start]:02x}.",
                f"Convert it, for example: {iconv_command(name, 'latin1')}",
            ) from None
        if b"\0" in piece:
            _check_is_text(piece, name, lines)
        if not piece:
            return
        waiting = decoder.getstate()[0]
        lines += piece.count(b"\n")
        yield piece


def _check_is_text(piece: bytes, name: str, lines: int) -> None:
    """Refuses bytes that occur in no text encoding, after `lines` lines."""
    if piece.startswith(GZIP) and not lines:
        raise UserError(f"{name} is packed with gzip.", "Give it a name that ends in .gz, or unpack it.")
    if (found := _BINARY.search(piece)) is not None:
        what = "A zero byte" if found[0] == b"\0" else f"The byte 0x{found[0][0]:02x}"
        raise UserError(f"{name}:{lines + piece.count(10, 0, found.start()) + 1}: {what}: this is not text.")


def lines_of(pieces: Iterable[bytes]) -> Iterator[str]:
    """The lines of checked bytes, wherever the pieces end. Only a new-line character ends a line."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line.decode()
    if rest:
        yield rest.decode()


def read_plain(lines: Iterable[str], name: str) -> PlainNGram:
    """The model of an ARPA file's lines; a bad line is named. The wording is that of native/ngram/arpa.cpp."""
    reader = _Reader(name)
    for line in lines:
        reader.feed(line)
    if not reader.line:
        raise _empty(name)
    model = reader.finish()
    _check_sum(reader.unigram_sum, name)
    return model


def read_native(pieces: Iterable[bytes], name: str, reader: Any) -> Any:
    """The same in C++: `reader` is an ArpaReader."""
    try:
        some = False
        for piece in pieces:
            reader.feed(piece)
            some = True
        if not some:
            raise _empty(name)
        model = reader.finish()
    except RuntimeError as error:
        raise at_line(error, name) from None
    _check_sum(reader.unigram_sum, name)
    return model


def _empty(name: str) -> UserError:
    return UserError(f"{name} is empty.", "Give an n-gram model, .arpa or .arpa.gz.")


def _check_sum(unigrams: float, name: str) -> None:
    """Some tools write scores that are not probabilities; a damaged file may look the same."""
    if unigrams > MOST_SUM:
        note(f"{name}: the probabilities of the 1-grams sum to {unigrams:.4g}, not to 1. The file may be damaged.")


def at_line(error: RuntimeError, name: str) -> RuntimeError:
    """The C++ core's error of a bad line (LINE, PROBLEM, FIX) as a UserError; other errors unchanged."""
    parts = str(error).split("\n")
    if isinstance(error, UserError) or len(parts) != 3:
        return error
    line, problem, fix = parts
    return UserError(f"{name}:{line}: {_cut(problem)}", fix)


def _cut(problem: str) -> str:
    return problem if len(problem) <= LONGEST else f"{problem[:LONGEST]}…"


class _Reader:
    def __init__(self, name: str) -> None:
        self.name, self.line = name, 0
        self.read: Callable[[str], None] = self._before
        self.counts: list[int] = []
        self.order, self.found = 0, 0  # of the section
        self.unigram_sum = 0.0
        self.model = PlainNGram(1)

    def feed(self, line: str) -> None:
        self.line += 1
        self.read(line.lstrip(" \t").rstrip(" \t\r"))

    def finish(self) -> PlainNGram:
        if self.read == self._before:
            self._wrong("The file has no line \\data\\: it is not an ARPA file.")
        if self.read != self._after:
            self._wrong("The file ends before \\end\\.", "It was cut off: get the whole of it.")
        for needed in (BEGIN, END):
            if self.model.find(needed) != needed:
                self._wrong(f"The model has no unigram {needed}.", "Every ARPA file needs <s> and </s>.")
        return self.model

    def _wrong(self, problem: str, fix: str = "") -> NoReturn:
        raise UserError(f"{self.name}:{self.line}: {_cut(problem)}", fix)

    def _before(self, line: str) -> None:
        if line == "\\data\\":
            self.read = self._count

    def _after(self, line: str) -> None:
        if line:
            self._wrong("There is text after \\end\\.", "Two files may have been joined: give one model.")

    def _count(self, line: str) -> None:
        if not line or self._begins_section(line):
            return
        match = re.fullmatch(r"ngram [ \t]*([0-9]{1,20})[ \t]*=[ \t]*([0-9]{1,20})", line)
        if match is None or max(int(match[1]), int(match[2])) >= 1 << 64:
            self._wrong(f"Got '{line}'.", "Expected a line such as: ngram 2=1000")
        order = int(match[1])
        if order != len(self.counts) + 1 or order > MOST_ORDER:
            self._wrong(f"Got the count of {order}-grams, expected that of {len(self.counts) + 1}-grams.")
        self.counts.append(int(match[2]))

    def _begins_section(self, line: str) -> bool:
        if not (line == "\\end\\" or (line.startswith("\\") and line.endswith("-grams:"))):
            return False
        if self.order == 0:
            if not self.counts:
                self._wrong("There are no counts after \\data\\.", "Expected a line such as: ngram 1=1000")
            self.model = PlainNGram(len(self.counts))
        elif self.found != self.counts[self.order - 1]:
            self._wrong(
                f"There are {self.found} {self.order}-grams, the header says {self.counts[self.order - 1]}.",
                "The file was cut or changed: get the whole of it.",
            )
        last = self.order == len(self.counts)
        expected = "\\end\\" if last else f"\\{self.order + 1}-grams:"
        if line != expected:
            self._wrong(f"Got {line}, expected {expected}.")
        self.read = self._after if last else self._ngram
        self.order, self.found = self.order + 1, 0
        return True

    def _ngram(self, line: str) -> None:
        if not line or self._begins_section(line):
            return
        fields = _BLANKS.split(line)
        order = self.order
        if len(fields) - order not in (1, 2):
            self._wrong(
                f"Got {len(fields)} fields in a line of the {order}-grams.",
                f"Expected a log10 probability, {order} {'word' if order == 1 else 'words'}, and a back-off or none.",
            )
        prob = self._number(fields[0], "a log10 probability")
        if np.float32(prob) > 0:
            self._wrong(f"The log10 probability {fields[0]} is above 0.")
        backoff = self._number(fields[-1], "a back-off") if len(fields) == order + 2 else 0.0
        if backoff != 0 and order == len(self.counts):
            self._wrong(
                f"An n-gram of the highest order has the back-off {fields[-1]}.", "Nothing is longer: leave it out."
            )
        self.found += 1
        words = [UNKNOWN if word == "<UNK>" else word for word in fields[1 : order + 1]]
        for place, word in enumerate(words):
            if order > 1 and (word,) not in self.model.tables[0]:
                self._wrong(f"The word '{fields[1 + place]}' has no unigram.")
        if order == 1 and words[0] != BEGIN:
            self.unigram_sum += 10**prob
        if order > 2 and tuple(words[:-1]) not in self.model.tables[order - 2]:
            self._wrong(
                f"The context '{' '.join(fields[1:order])}' has no {order - 1}-gram.",
                "Every context of an n-gram is an n-gram itself: the file was cut or changed.",
            )
        if not self.model.add(words, prob, backoff):
            again = " ".join(fields[1 : order + 1])
            self._wrong(f"The {order}-gram '{again}' stands here again.", "Leave one of them out.")

    def _number(self, text: str, what: str) -> float:
        number = float(text) if _NUMBER.fullmatch(text) else math.nan
        vanished = number == 0 and re.search("[1-9]", re.split("[eE]", text)[0])
        if not math.isfinite(number) or vanished:
            self._wrong(f"Got '{text}' as {what}.", "Expected a number.")
        if abs(number) > LARGEST:
            self._wrong(f"Got '{text}' as {what}.", "Expected log10 of a probability; -99 stands for none.")
        return number


def write_plain(model: PlainNGram) -> Iterator[bytes]:
    """The ARPA file of a model, line by line."""
    yield b"\\data\\\n"
    for order in range(1, model.order + 1):
        yield f"ngram {order}={model.count(order)}\n".encode()
    for order in range(1, model.order + 1):
        yield f"\n\\{order}-grams:\n".encode()
        for words, prob, backoff in model.ngrams(order):
            end = f"\t{_digits(backoff)}" if order < model.order else ""
            yield f"{_digits(prob)}\t{' '.join(words)}{end}\n".encode()
    yield b"\n\\end\\\n"


def write_native(writer: Any) -> Iterator[bytes]:
    """The same in C++: `writer` is an ArpaWriter."""
    while piece := writer.next():
        yield piece


def save(pieces: Iterable[bytes], path: Path) -> None:
    """Puts a new file in its place when it is whole, packed where its name ends in .gz."""
    with new_file(path) as beside, beside.open("wb") as raw, ExitStack() as stack:
        file: IO[bytes] = raw
        if path.suffix == ".gz":  # without a time and a name in it, the same model gives the same bytes
            file = cast(IO[bytes], stack.enter_context(gzip.GzipFile("", "wb", 6, raw, mtime=0)))
        for piece in pieces:
            file.write(piece)


def _digits(number: float) -> str:
    """The fewest digits that bring back the same float32."""
    return np.format_float_positional(np.float32(number), unique=True, trim="-")
