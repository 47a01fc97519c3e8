"""The documents of `unrolled run` of a tagger, read and written: plain lines, CoNLL-U, columns, JSON lines."""

from __future__ import annotations

import io
import itertools
import re
import unicodedata
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from unrolled.data import read_table, read_text
from unrolled.data.readers.tagged.columns import DOCUMENT, ColumnsFile
from unrolled.data.readers.tagged.conllu import ConlluFile
from unrolled.data.readers.tagged.read_sentences import looks_like_conllu, sentence_of
from unrolled.data.readers.tagged.sentences import Columns, Sentence
from unrolled.data.readers.tagged.tag_names import usual_columns
from unrolled.errors import UserError
from unrolled.tasks.runner import Request
from unrolled.text.files import suffix_of
from unrolled.text.words import split_words

LOOKED_AT = 1000  # lines that tell what a stream holds
COLUMN_ENDINGS = (".conll", ".iob", ".iob2", ".bio", ".bioes", ".col", ".cols")
BYTE_ORDER_MARK = "\ufeff"
JOINER = "\u200d"  # makes one emoji of several
_SPACED = r"(?:(?![\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff])\w)"  # scripts with blanks
STAYS_WHOLE = re.compile(
    r"(?:\b[A-Za-z][A-Za-z0-9+.-]{0,20}://|\bwww\.)[^\s<>\"“”«»|]+"  # https://x.y
    r"|\b[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64})+"  # a.b@c.org
    rf"|(?<!\w)@{_SPACED}+|(?<!\w)#{_SPACED}+"  # @name, #tag
)
ENDS = ".,;:!?'\")]}…"  # signs that end a sentence, not an address

Tags = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Document:
    """Sentences, or texts still to be split into words; `write` gives a file back with tags in their place."""

    sentences: Iterable[str | Sentence]
    write: Callable[[Tags], Iterator[str]] | None = None


@dataclass(frozen=True)
class Documents:
    """The documents of a request for a model with these columns, tags and values of features."""

    columns: Columns
    tags: Container[str]
    features: Sequence[Container[str]] = ()

    def of(self, request: Request) -> Iterator[Document]:
        if request.texts is not None:
            yield Document(request.texts)
        for file in request.files:
            yield self.of_file(Path(file))
        lines = iter(request.lines)
        first = list(itertools.islice(lines, LOOKED_AT))
        if first:
            yield self.of_lines(first, lines, "standard input")

    def of_file(self, path: Path) -> Document:
        ending = suffix_of(path)
        if ending in (".jsonl", ".json", ".parquet"):
            names = (usual_columns(path, self.columns.words, "tags")[0], *self.columns.features)
            return Document([sentence_of(row, names) for row in read_table(path, names, names)])
        text = read_text(path, exact=True)
        if ending == ".conllu":
            return self.of_conllu(text, str(path))
        if ending in COLUMN_ENDINGS:
            return self.of_columns(text, str(path))
        return self.of_lines(list(io.StringIO(text)), iter(()), str(path))

    def of_lines(self, first: list[str], rest: Iterator[str], name: str) -> Document:
        """CoNLL-U or columns where the first lines, which have their ends, look like it; else a text on each line."""
        seen = TaggedLines.of("".join(first)).plain
        if looks_like_conllu(seen):
            return self.of_conllu("".join([*first, *rest]), name)
        if self.look_like_columns(seen):
            return self.of_columns("".join([*first, *rest]), name)
        if self.columns.features:
            raise UserError(
                f"{name} looks like text, and this model reads more than words: "
                f"the columns {', '.join(self.columns.features)}.",
                "Give them too, as in the files that it was trained on; "
                "what has tabs between columns, or ends in .conll, is never taken for text.",
            )
        return Document(itertools.chain(seen, (line.rstrip("\r\n") for line in rest)))

    def look_like_columns(self, lines: Sequence[str]) -> bool:
        """True if all lines have the same number of words, and most end in a tag.

        For a model with features: True if there are tabs, or most lines have known values of features.
        """
        lines = [line for line in lines if line.strip() and not line.startswith(DOCUMENT)]
        words = [line.split() for line in lines]
        if self.columns.features:
            if not all(map(_is_number, self.columns.features)):
                return False  # only columns of CoNLL-U, JSON lines and Parquet have names
            return "\t" in "".join(lines[:1]) or sum(map(self.has_features, words)) > len(words) / 2
        tagged = sum(line[-1] in self.tags for line in words) > len(words) / 2
        alike = len(words) > 1 and len({len(line) for line in words}) == 1 and len(words[0]) > 1
        return alike and tagged

    def has_features(self, cells: Sequence[str]) -> bool:
        """True if the cells of a line hold known values in the columns of the features."""
        numbers = [int(name) for name in self.columns.features]
        if max(map(abs, numbers)) > len(cells):
            return False
        found = (cells[number - (number > 0)] for number in numbers)
        return all(cell in known for cell, known in zip(found, self.features, strict=True))

    def of_conllu(self, text: str, name: str) -> Document:
        lines = TaggedLines.of(text)
        file = ConlluFile.parse(lines.plain, name)
        sentences, column = file.sentences(self.columns), self.columns.conllu
        return Document(sentences, lambda tags: lines.around(file.with_tags(tags, column)))

    def of_columns(self, text: str, name: str) -> Document:
        lines = TaggedLines.of(text)
        file = ColumnsFile.parse(lines.plain, name)
        sentences, place = file.sentences(self.columns, tagged=False), self.place_of_tags(file)
        return Document(sentences, lambda tags: lines.around(file.with_tags(tags, place)))

    def place_of_tags(self, file: ColumnsFile) -> int:
        """Tags replace those that are there; where the place for tags holds others, they become a new last column."""
        if file.width < 2:
            return file.width
        place = file.position(self.columns.tags or "-1")
        if self.columns.tags:
            return place
        if place == file.position(self.columns.words or "1"):
            return file.width
        filled = [tag for sentence in file.sentences(self.columns) for tag in sentence.tags or () if tag]
        known = sum(tag in self.tags for tag in filled)
        return place if known > len(filled) / 2 or not filled else file.width


@dataclass(frozen=True)
class TaggedLines:
    """The lines of a text, with its byte order mark and its line ends kept apart.

    >>> lines = TaggedLines.of("a\\r\\nb")
    >>> lines.plain, "".join(lines.around(["A", "B"]))
    (['a', 'b'], 'A\\r\\nB')
    """

    plain: list[str]
    ends: list[str]
    mark: str

    @classmethod
    def of(cls, text: str) -> TaggedLines:
        mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
        whole = list(io.StringIO(text[len(mark) :]))
        plain = [line.rstrip("\r\n") for line in whole]
        return cls(plain, [line[len(short) :] for line, short in zip(whole, plain, strict=True)], mark)

    def around(self, lines: Iterable[str]) -> Iterator[str]:
        """Other lines, with what stood around these."""
        mark = self.mark
        for line, end in zip(lines, self.ends, strict=True):
            yield mark + line + end
            mark = ""


def in_a_row(texts: Iterable[Iterator[str]]) -> Iterator[str]:
    """The pieces of several texts: each text begins on a new line, and only the first may have a byte order mark."""
    last = ""
    for pieces in texts:
        first = next(pieces, "")
        if last:
            yield "" if last.endswith("\n") else "\n"
            first = first.removeprefix(BYTE_ORDER_MARK)
        for piece in itertools.chain([first], pieces):
            yield piece
            last = piece or last


def words_of(text: str) -> list[str]:
    """The words and signs of a text; a letter with its marks, or an emoji made of several, is in one piece.

    So is an address of the web or of mail, an @name and a #tag.

    >>> [len(word) for word in words_of("ok 👩‍💻👍🏽!")]
    [2, 3, 2, 1]
    >>> words_of("See https://x.y/a?b=1, @ada or #news (mail a.b@c.org).")
    ['See', 'https://x.y/a?b=1', ',', '@ada', 'or', '#news', '(', 'mail', 'a.b@c.org', ')', '.']
    """
    return [word for blank_free in text.split() for word in _parts(blank_free)]


def _parts(text: str) -> list[str]:
    """The words of a text without blanks: what stays whole, and what stands around it."""
    parts, begin, at = [], 0, 0
    while (found := STAYS_WHOLE.search(text, at)) is not None:
        whole = found[0]
        while whole[-1] in ENDS and not (whole[-1] == ")" and whole.count("(") >= whole.count(")")):
            whole = whole[:-1]
        at = found.start() + len(whole)
        if len(whole) > 1:
            parts += [*_words(text[begin : found.start()]), whole]
            begin = at
        at = max(at, found.start() + 1)
    return parts + _words(text[begin:])


def _words(text: str) -> list[str]:
    whole: list[str] = []
    for part in split_words(text):
        marks = "".join(itertools.takewhile(_goes_on, part)) if whole else ""
        if whole:
            whole[-1] += marks
        rest = part[len(marks) :]
        if rest and whole and whole[-1].endswith(JOINER) and unicodedata.category(rest[0]) == "So":
            whole[-1] += rest
        elif rest:
            whole.append(rest)
    return whole


def _goes_on(char: str) -> bool:
    """True for a character that belongs to the one before it: a mark, a joiner, a skin tone."""
    return unicodedata.category(char)[0] == "M" or char == JOINER or "\U0001f3fb" <= char <= "\U0001f3ff"


def _is_number(column: str) -> bool:
    return column.removeprefix("-").isdecimal()
