"""Reading files of word vectors: word2vec's and GloVe's text, word2vec's binary, NumPy's .npz."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from unrolled.errors import UserError, note
from unrolled.text.array_files import ArrayError, PickledError, read_npz
from unrolled.text.files import opened, reading, suffix_of

KIND = "word2vec, GloVe or npz file"
BLOCK = 1 << 23  # bytes of text read at once
LONGEST_LINE = 1 << 20
WIDEST = 100_000
LARGEST = float(np.finfo(np.float32).max)
Floats = NDArray[np.float32]


class Chosen:
    """The selected rows of a file: the first `most`, and the words of `keep` in any row."""

    def __init__(self, most: int | None, keep: Iterable[str] | None) -> None:
        if isinstance(most, bool) or (most is not None and (not isinstance(most, int) or most < 1)):
            raise UserError(f"most={most!r} is not a number of rows.", "Expected a whole number from 1 on, or None.")
        if isinstance(keep, str):
            raise UserError(f"keep={keep!r} is one text.", f"Expected the words: [{keep!r}].")
        self.most = most
        self.keep = None if keep is None else {form for word in keep for form in (word, word.lower())}

    def __call__(self, row: int, word: str) -> bool:
        if self.keep is None:
            return self.most is None or row < self.most
        return word in self.keep or (self.most is not None and row < self.most)

    def ended(self, row: int) -> bool:
        """True if no row from this one on is selected."""
        return self.keep is None and self.most is not None and row >= self.most


@dataclass
class CollectedVectors:
    """Words read so far, each once, and their vectors."""

    path: Path
    width: int
    words: dict[str, None] = field(default_factory=dict)  # in their order
    twice: list[str] = field(default_factory=list)
    mended: list[str] = field(default_factory=list)
    filled: int = 0  # rows of the matrix

    def __post_init__(self) -> None:
        self.matrix: Floats = np.empty((0, self.width), dtype=np.float32)

    def new(self, word: str, raw: bytes) -> bool:
        """Add a word and the bytes it was read from; False for a repeated word.

        word2vec cuts very long words in the middle of a character: words that are not UTF-8 are counted, not an error.
        """
        if "\ufffd" in word and word.encode() != raw:
            self.mended.append(word)
        if word in self.words:
            self.twice.append(word)
            return False
        self.words[word] = None
        return True

    def add(self, vectors: Floats) -> None:
        """Add the vectors of new words; the matrix grows in place, without a second copy."""
        end = self.filled + len(vectors)
        if end > len(self.matrix):
            self.matrix.resize((max(end, len(self.matrix) * 5 // 4), self.width), refcheck=False)
        self.matrix[self.filled : end] = vectors
        self.filled = end

    def result(self) -> tuple[list[str], Floats]:
        for found, what in ((self.twice, "are repeated: the first counts"), (self.mended, "are not UTF-8")):
            if found:
                note(f"{self.path}: {len(found)} words {what}. The first of them: {found[0]!r}.")
        self.matrix.resize((self.filled, self.width), refcheck=False)
        return list(self.words), self.matrix


def read_vectors(path: Path, chosen: Chosen) -> tuple[list[str], Floats]:
    """Words and their vectors (N, D), by the file's name: .npz, .bin, or else text; the last two also as .gz."""
    if path.suffix == ".npz":
        return _read_npz(path, chosen)
    with opened(path, KIND) as file:
        if suffix_of(path) == ".bin":
            return _read_binary(path, file, chosen)
        return _read_text(path, file, chosen)


def _read_text(path: Path, file: IO[bytes], chosen: Chosen) -> tuple[list[str], Floats]:
    rows, promised, row = CollectedVectors(path, 0), None, 0
    for first, lines in _blocks(path, file):
        if first == 1:
            promised, width = _shape(path, lines[0])
            rows = CollectedVectors(path, width)
            first, lines = (2, lines[1:]) if promised is not None else (1, lines)
        row = _read_lines(rows, lines, first, row, chosen)
        if chosen.ended(row):
            break
    else:
        if promised is not None and row != promised:
            raise UserError(
                f"{path}: its first line declares {promised} words, {row} follow.",
                "The file is truncated or was concatenated: download it again, or correct the first line.",
            )
    if not row:
        raise UserError(f"{path} is empty.", f"Give the path of a {KIND}.")
    return rows.result()


def _blocks(path: Path, file: IO[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Whole lines, several megabytes of them at a time, with the number of the first."""
    number, rest = 1, b""
    while block := file.read(BLOCK):
        if number == 1 and not rest:
            block = block.removeprefix(b"\xef\xbb\xbf")
            _check_is_text(path, block)
        *lines, rest = (rest + block).split(b"\n")
        if len(rest) > LONGEST_LINE:
            raise UserError(f"{path}:{number + len(lines)}: the line has no end.", "Expected one word and its vector.")
        if lines:
            yield number, lines
        number += len(lines)
    if rest:
        yield number, [rest]


def _check_is_text(path: Path, block: bytes) -> None:
    if block.startswith(b"PK\3\4"):
        raise UserError(f"{path} is a zip archive.", f"Unpack it first: unzip {path}")
    if (zero := block.find(b"\0")) >= 0:
        raise UserError(
            f"{path} is not text: it has a zero byte at offset {zero}.",
            "If it is word2vec's binary format, name it .bin.",
        )


def _shape(path: Path, line: bytes) -> tuple[int | None, int]:
    """The number of words in word2vec's header, if the first line is one, and the width of the vectors."""
    if header := _header(path, line):
        return header
    fields = line.split()
    width = 0
    while width < len(fields) - 1 and is_number(fields[-1 - width]):
        width += 1
    if not width:
        raise UserError(
            f"{path}:1: {_shown(line)} is not a word and its vector.", "Expected a word and numbers between blanks."
        )
    return None, width


def _header(path: Path, line: bytes) -> tuple[int, int] | None:
    """The numbers of a header line WORDS WIDTH; None for any other line."""
    fields = line.split()
    if len(fields) != 2 or not all(part.isdigit() and len(part) < 12 for part in fields):
        return None
    count, width = map(int, fields)
    if not 0 < width <= WIDEST:
        raise UserError(
            f"{path}:1: the vectors have {width} numbers.", f"Expected the line WORDS WIDTH, 1 to {WIDEST}."
        )
    return count, width


def _read_lines(rows: CollectedVectors, lines: list[bytes], first: int, row: int, chosen: Chosen) -> int:
    """Add the selected rows of some lines; returns the number of the next row."""
    width = rows.width
    tails: list[bytes] = []
    places: list[int] = []
    for number, line in enumerate(lines, first):
        line = line.rstrip(b" \r\t")
        if not line:
            continue
        head, _, tail = line.partition(b" ")
        if tail.count(b" ") != width - 1 or not head:
            head, tail = _split(rows.path, number, line, width)
        word = head.decode(errors="replace")
        if chosen(row, word) and rows.new(word, head):
            tails.append(tail)
            places.append(number)
        row += 1
        if chosen.ended(row):
            break
    if tails:
        rows.add(_numbers(rows.path, tails, places, width))
    return row


def _split(path: Path, number: int, line: bytes, width: int) -> tuple[bytes, bytes]:
    """Parse an unusual line: the word contains blanks, or tabs separate the numbers."""
    fields = line.replace(b"\t", b" ").split(b" ")
    fields = fields[:1] + [part for part in fields[1:] if part]
    word, numbers = b" ".join(fields[:-width]), fields[-width:]
    found = len(fields) - 1
    if len(fields) > width + 1 and is_number(fields[-1 - width]):
        raise UserError(f"{path}:{number}: {_shown(line)} has more than {width} numbers.", _EQUAL)
    if found < width:
        raise UserError(f"{path}:{number}: {_shown(line)} has {found} numbers, not {width}.", _EQUAL)
    if not word.strip():
        raise UserError(f"{path}:{number}: the line has numbers, but no word before them.", _EQUAL)
    return word, b" ".join(numbers)


_EQUAL = "Expected a word and as many numbers on every line."


def _numbers(path: Path, tails: list[bytes], places: list[int], width: int) -> Floats:
    """The numbers of lines, (lines, width), by Arrow's reader: three times as fast as NumPy's."""
    import pyarrow
    from pyarrow import csv

    column = b"\n".join(tails).replace(b" ", b"\n")
    try:
        table = csv.read_csv(
            pyarrow.BufferReader(column),
            read_options=csv.ReadOptions(column_names=["numbers"]),
            parse_options=csv.ParseOptions(quote_char=False, ignore_empty_lines=False),
            convert_options=csv.ConvertOptions(column_types={"numbers": pyarrow.float32()}, null_values=[]),
        )
        values: Floats = table["numbers"].to_numpy()
    except pyarrow.ArrowInvalid:
        raise _wrong_number(path, tails, places, width) from None
    if len(values) != len(tails) * width or not np.isfinite(values).all():
        raise _wrong_number(path, tails, places, width)
    return values.reshape(len(tails), width)


def _wrong_number(path: Path, tails: list[bytes], places: list[int], width: int) -> UserError:
    for number, tail in zip(places, tails, strict=True):
        fields = tail.split()
        if len(fields) != width:
            return UserError(f"{path}:{number}: {len(fields)} numbers, not {width}.", _EQUAL)
        for at, part in enumerate(fields, 1):
            if not is_number(part):
                return UserError(f"{path}:{number}: {_shown(part)}, value {at}, is not a number.", _EQUAL)
            if not abs(float(part)) <= LARGEST:
                return UserError(f"{path}:{number}: value {at} is {part.decode()}.", "Expected finite numbers.")
    return UserError(f"{path}: lines {places[0]} to {places[-1]} hold something that is not a number.", _EQUAL)


def is_number(raw: bytes) -> bool:
    try:
        float(raw)
    except ValueError:
        return False
    return b"_" not in raw


def _shown(raw: bytes) -> str:
    text = raw.decode(errors="replace")
    return repr(text if len(text) <= 40 else text[:40] + "…")


def _read_binary(path: Path, file: IO[bytes], chosen: Chosen) -> tuple[list[str], Floats]:
    """word2vec's binary: a line WORDS WIDTH, then word, blank, and its numbers as little-endian float32."""
    header = _header(path, file.readline(100))
    if header is None:
        raise UserError(f"{path} is not word2vec's binary format.", "Expected the first line: WORDS WIDTH.")
    count, width = header
    rows, buffer, at = CollectedVectors(path, width), b"", 0
    found: list[Floats] = []
    for row in range(count):
        if chosen.ended(row):
            break
        blank = buffer.find(b" ", at)
        if blank < 0 or len(buffer) < blank + 1 + 4 * width:
            buffer, at = buffer[at:] + file.read(BLOCK + 4 * width), 0
            blank = buffer.find(b" ")
        if blank < 0 or len(buffer) < blank + 1 + 4 * width:
            raise UserError(f"{path} declares {count} words, but ends after {row}.", "The file is truncated.")
        raw = buffer[at:blank].lstrip(b"\n")
        word = raw.decode(errors="replace")
        at = blank + 1 + 4 * width
        if chosen(row, word) and rows.new(word, raw):
            found.append(np.frombuffer(buffer, dtype="<f4", count=width, offset=blank + 1).astype(np.float32))
            if len(found) * width * 4 >= BLOCK:
                rows.add(np.stack(found))
                found.clear()
    if found:
        rows.add(np.stack(found))
    words, matrix = rows.result()
    return words, _finite(path, words, matrix)


def _read_npz(path: Path, chosen: Chosen) -> tuple[list[str], Floats]:
    arrays = _arrays(path)
    if "vectors" not in arrays:
        raise UserError(
            f"{path} has no array 'vectors'.", "Expected `vectors` (N, D), and `words` (N,) or a words.txt beside it."
        )
    vectors = arrays["vectors"]
    if vectors.ndim != 2 or vectors.dtype.kind != "f":
        problem = f"{path}: vectors has shape {vectors.shape} and type {vectors.dtype}."
        raise UserError(problem, "Expected floating-point numbers (N, D).")
    words, place = _words_of(path, arrays.get("words"))
    if len(words) != len(vectors):
        raise UserError(f"{place} has {len(words)} words, {path} {len(vectors)} vectors.", "Expected a word for each.")
    rows = CollectedVectors(path, vectors.shape[1])
    wanted = [row for row, word in enumerate(words) if chosen(row, word) and rows.new(word, word.encode())]
    picked = vectors if len(wanted) == len(vectors) else vectors[wanted]
    rows.add(picked)
    kept, matrix = rows.result()
    return kept, _finite(path, kept, matrix)


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    with reading(path, KIND), path.open("rb") as file:
        if not zipfile.is_zipfile(file):
            raise UserError(f"{path} is not a whole npz file.", f"Give the path of a {KIND}.")
    try:
        with reading(path, KIND):
            return read_npz(path, ("vectors", "words"))
    except PickledError:
        raise UserError(
            f"{path} holds Python objects, which are not read: they could run code.",
            "Store the words as an array of text: np.array(words, dtype=str).",
        ) from None
    except ArrayError as error:
        raise UserError(f"{path} is not a whole npz file: {error}.", f"Give the path of a {KIND}.") from None


def _words_of(path: Path, stored: NDArray[Any] | None) -> tuple[list[str], str]:
    """The words of an npz file, and the name of their place."""
    if stored is not None:
        if stored.ndim != 1 or stored.dtype.kind != "U":
            problem = f"{path}: words has shape {stored.shape} and type {stored.dtype}."
            raise UserError(problem, "Expected text (N,).")
        return stored.tolist(), f"words in {path}"
    beside = path.with_name("words.txt")
    if not beside.exists():
        raise UserError(f"{path} has no array 'words', and there is no {beside}.", "Expected the words in one of them.")
    with reading(beside):
        try:
            lines = beside.read_bytes().decode("utf-8-sig").replace("\r\n", "\n").split("\n")
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            raise UserError(f"{beside}:{line} is not UTF-8.", "Convert it, for example with iconv.") from None
    return lines[:-1] if lines[-1] == "" else lines, str(beside)


def _finite(path: Path, words: list[str], matrix: Floats) -> Floats:
    wrong = ~np.isfinite(matrix).all(axis=1)
    if wrong.any():
        row = int(wrong.argmax())
        raise UserError(f"{path}: the vector of {words[row]!r} holds NaN or infinity.", "Expected finite numbers.")
    return matrix
