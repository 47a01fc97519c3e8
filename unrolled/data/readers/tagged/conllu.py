"""CoNLL-U: one word on a line in ten columns; unselected columns are written back unchanged."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from unrolled.data.memory.held import shown
from unrolled.data.readers.tagged.sentences import USUAL, Columns, Sentence
from unrolled.data.readers.text import read_text
from unrolled.errors import UserError, unknown_name

FIELDS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_OTHER = re.compile(r"\d+-\d+|\d+\.\d+")  # multiword tokens and empty nodes: not words


@dataclass(frozen=True)
class ConlluFile:
    """The lines of a file, and the lines of each sentence's words.

    >>> file = ConlluFile.parse(["# text = Go!", *("\\t".join([i, w, *"________"]) for i, w in ("1 Go".split(), "2!"))])
    >>> [sentence.words for sentence in file.sentences()]
    [('Go', '!')]
    >>> print(*file.with_tags([["VERB", "PUNCT"]], "upos"), sep="\\n")
    # text = Go!
    1	Go	_	VERB	_	_	_	_	_	_
    2	!	_	PUNCT	_	_	_	_	_	_
    """

    lines: tuple[str, ...]  # without their ends
    rows: tuple[tuple[int, ...], ...]  # numbers of the lines of each sentence's words
    name: str = "<text>"

    @classmethod
    def read(cls, path: str | Path) -> ConlluFile:
        return cls.parse(read_text(path).split("\n"), str(shown(path)))

    @classmethod
    def parse(cls, lines: Sequence[str], name: str = "<text>") -> ConlluFile:
        """Find the words; a line that is not blank, a comment, or ten columns is an error."""
        sentences: list[tuple[int, ...]] = []
        words: list[int] = []
        for number, line in enumerate((*lines, "")):
            if not line.strip():
                if words:
                    sentences.append(tuple(words))
                words = []
            elif not line.startswith("#"):
                columns = line.split("\t")
                if len(columns) != len(FIELDS):
                    raise UserError(
                        f"{name}:{number + 1} has {len(columns)} tab-separated columns, expected 10: {line[:60]!r}",
                        "CoNLL-U has ten; a comment starts with #.",
                    )
                if columns[0].isdecimal():
                    words.append(number)
                elif not _OTHER.fullmatch(columns[0]):
                    raise UserError(
                        f"{name}:{number + 1} has the word number {columns[0]!r}.",
                        "Expected a number, as 3; a range, as 3-4, or an empty node, as 3.1.",
                    )
        return cls(tuple(lines), tuple(sentences), name)

    def sentences(self, columns: Columns = USUAL) -> list[Sentence]:
        """The words with the tags and features of the selected columns."""
        form, tag = position("form"), position(columns.conllu)
        features = [position(name) for name in columns.features]
        found = []
        for rows in self.rows:
            cells = [self.lines[row].split("\t") for row in rows]
            found.append(
                Sentence(
                    tuple(cell[form] for cell in cells),
                    tuple(cell[tag] for cell in cells),
                    tuple(tuple(cell[feature] for cell in cells) for feature in features),
                    f"{self.name}:{rows[0] + 1}",
                )
            )
        return found

    def with_tags(self, tags: Sequence[Sequence[str]], column: str) -> Iterator[str]:
        """The lines with new tags in a column; everything else is unchanged."""
        place = position(column)
        new = {
            row: tag for rows, given in zip(self.rows, tags, strict=True) for row, tag in zip(rows, given, strict=True)
        }
        for number, line in enumerate(self.lines):
            if number in new:
                cells = line.split("\t")
                cells[place] = new[number]
                yield "\t".join(cells)
            else:
                yield line


def position(column: str) -> int:
    """The index of a column by its name, or by its number from 1 on."""
    if column.isdecimal() and 1 <= int(column) <= len(FIELDS):
        return int(column) - 1
    if column.lower() not in FIELDS:
        raise unknown_name("column of CoNLL-U", column, FIELDS)
    return FIELDS.index(column.lower())
