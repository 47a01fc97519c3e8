"""Files of columns as in CoNLL-2000 and 2003: a word and its annotations on each line; blank lines end sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from unrolled.data.memory.held import shown
from unrolled.data.readers.tagged.sentences import USUAL, Columns, Sentence
from unrolled.data.readers.text import read_text
from unrolled.errors import UserError

DOCUMENT = "-DOCSTART-"
_BETWEEN_TABS = re.compile(r"(?<![^\t])[^\t]*")
_BETWEEN_BLANKS = re.compile(r"\S+")


@dataclass(frozen=True)
class ColumnsFile:
    """The lines of a file, and the lines of each sentence's words. Tabs, or else blanks, separate the columns.

    >>> file = ColumnsFile.parse(["He PRP B-NP", "ran VBD B-VP", "", ". . O"])
    >>> [(s.words, s.tags) for s in file.sentences()]
    [(('He', 'ran'), ('B-NP', 'B-VP')), (('.',), ('O',))]
    >>> file.sentences(Columns(features=("2",)))[0].features
    (('PRP', 'VBD'),)
    """

    lines: tuple[str, ...]
    rows: tuple[tuple[int, ...], ...]  # numbers of the lines of each sentence's words
    width: int  # number of columns
    cells: re.Pattern[str]  # matches the cells of a line; between tabs they may be empty
    name: str = "<text>"

    @classmethod
    def read(cls, path: str | Path) -> ColumnsFile:
        return cls.parse(read_text(path).split("\n"), str(shown(path)))

    @classmethod
    def parse(cls, lines: Sequence[str], name: str = "<text>") -> ColumnsFile:
        """Find the words; every line must have as many columns as the first. -DOCSTART- lines are skipped."""
        sentences: list[tuple[int, ...]] = []
        words: list[int] = []
        width, cells = 0, _BETWEEN_BLANKS
        for number, line in enumerate((*lines, "")):
            if not line.strip() or line.startswith(DOCUMENT):
                if words:
                    sentences.append(tuple(words))
                words = []
                continue
            if not width:
                cells = _BETWEEN_TABS if "\t" in line else _BETWEEN_BLANKS
                width = len(cells.findall(line))
            if (found := len(cells.findall(line))) != width:
                kind = "tab" if cells is _BETWEEN_TABS else "blank"
                raise UserError(
                    f"{name}:{number + 1} has {found} {kind}-separated columns, "
                    f"expected {width} as in the lines before: {line[:60]!r}",
                    "Give every word the same columns, and put a blank line between sentences.",
                )
            words.append(number)
        return cls(tuple(lines), tuple(sentences), width, cells, name)

    def sentences(self, columns: Columns = USUAL, *, tagged: bool = True) -> list[Sentence]:
        """The words with the selected features, and their tags if `tagged`."""
        if not self.rows:
            return []
        word = self.position(columns.words or "1")
        tag = self.position(columns.tags or str(self.width)) if tagged else None
        if word == tag and self.width > 1:
            raise UserError(
                f"{self.name}: column {word + 1} cannot hold both words and tags.",
                "Set data.word_column and data.tag_column to two columns.",
            )
        if word == tag:
            raise UserError(f"{self.name} has one column: words without tags.", "Expected a word and a tag on a line.")
        features = [self.position(name) for name in columns.features]
        found = []
        for rows in self.rows:
            cells = [self.cells.findall(self.lines[row]) for row in rows]
            found.append(
                Sentence(
                    tuple(cell[word] for cell in cells),
                    None if tag is None else tuple(cell[tag] for cell in cells),
                    tuple(tuple(cell[feature] for cell in cells) for feature in features),
                    f"{self.name}:{rows[0] + 1}",
                )
            )
        return found

    def with_tags(self, tags: Sequence[Sequence[str]], column: int) -> Iterator[str]:
        """The lines with new tags in a column, counted from 0, or in a new last one; everything else is unchanged."""
        new = {
            row: tag for rows, given in zip(self.rows, tags, strict=True) for row, tag in zip(rows, given, strict=True)
        }
        for number, line in enumerate(self.lines):
            if number not in new:
                yield line
                continue
            if column == self.width:
                yield f"{line}\t{new[number]}" if self.cells is _BETWEEN_TABS else f"{line.rstrip()} {new[number]}"
                continue
            first, last = [cell.span() for cell in self.cells.finditer(line)][column]
            yield line[:first] + new[number] + line[last:]

    def position(self, column: str) -> int:
        """The index of a column from 0, by its number; negative numbers count from the end."""
        try:
            number = int(column)
        except ValueError:
            raise UserError(
                f"{self.name} has columns without names, but {column!r} was asked for.", "Give a number from 1 on."
            ) from None
        place = number - 1 if number > 0 else self.width + number
        if number == 0 or not 0 <= place < self.width:
            raise UserError(f"{self.name} has {self.width} columns, but column {number} was asked for.")
        return place
