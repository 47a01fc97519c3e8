"""What `unrolled run` of a tagger reads, and how it is written back: plain lines, CoNLL-U, columns, JSON lines."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from unrolled.data import read_table, read_text
from unrolled.data.columns import DOCUMENT, ColumnsFile
from unrolled.data.conllu import ConlluFile
from unrolled.data.sentences import Columns, Sentence
from unrolled.data.tagged import ending_of, looks_like_conllu, sentence_of
from unrolled.tasks.base import Request

LOOKED_AT = 1000  # lines that tell what a stream holds
COLUMN_ENDINGS = (".conll", ".iob", ".iob2", ".bio", ".bioes", ".col", ".cols")

Tags = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Document:
    """Sentences, or texts still to be split into words; `write` gives a file back with tags in their place."""

    sentences: Iterable[str | Sentence]
    write: Callable[[Tags], Iterator[str]] | None = None


@dataclass(frozen=True)
class Documents:
    """What a request means to a model that reads these columns and knows these tags."""

    columns: Columns
    tags: Container[str]

    def of(self, request: Request) -> Iterator[Document]:
        if request.texts is not None:
            yield Document(request.texts)
        for file in request.files:
            yield self.of_file(Path(file))
        lines = (line.rstrip("\r\n") for line in request.lines)
        first = list(itertools.islice(lines, LOOKED_AT))
        if first:
            yield self.of_lines(first, lines, "standard input")

    def of_file(self, path: Path) -> Document:
        ending = ending_of(path)
        if ending in (".jsonl", ".parquet"):
            columns = Columns(self.columns.words, None, self.columns.features)
            names = (columns.words or "tokens", *columns.features)
            return Document([sentence_of(row, names) for row in read_table(path, names, names)])
        lines = read_text(path).split("\n")
        if ending == ".conllu":
            return self.of_conllu(lines, str(path))
        if ending in COLUMN_ENDINGS:
            return self.of_columns(lines, str(path))
        if lines[-1] == "":
            lines.pop()
        return self.of_lines(lines, iter(()), str(path))

    def of_lines(self, first: list[str], rest: Iterator[str], name: str) -> Document:
        """CoNLL-U or columns where the first lines look like it, else a text on each line."""
        if looks_like_conllu(first):
            return self.of_conllu([*first, *rest, ""], name)
        if self.look_like_columns(first):
            return self.of_columns([*first, *rest, ""], name)
        return Document(itertools.chain(first, rest))

    def look_like_columns(self, lines: Sequence[str]) -> bool:
        """Whether all lines have as many words, and most end in a tag; or the model needs columns that no text has."""
        words = [line.split() for line in lines if line.strip() and not line.startswith(DOCUMENT)]
        tagged = sum(line[-1] in self.tags for line in words) > len(words) / 2
        alike = len(words) > 1 and len({len(line) for line in words}) == 1 and len(words[0]) > 1
        return bool(self.columns.features) or (alike and tagged)

    def of_conllu(self, lines: Sequence[str], name: str) -> Document:
        file = ConlluFile.parse(lines, name)
        return Document(file.sentences(self.columns), lambda tags: _joined(file.with_tags(tags, self.columns.conllu)))

    def of_columns(self, lines: Sequence[str], name: str) -> Document:
        """Tags replace those that are there; where the place for tags holds none, they become a new last column."""
        file = ColumnsFile.parse(lines, name)
        place = file.width
        if file.width > 1:
            there = file.position(self.columns.tags or "-1")
            values = [tag for sentence in file.sentences(self.columns) for tag in sentence.tags or ()]
            if self.columns.tags or sum(value in self.tags for value in values) > len(values) / 2:
                place = there
        return Document(file.sentences(self.columns, tagged=False), lambda tags: _joined(file.with_tags(tags, place)))


def _joined(lines: Iterable[str]) -> Iterator[str]:
    """The lines with their ends; the last has none."""
    before: str | None = None
    for line in lines:
        if before is not None:
            yield before + "\n"
        before = line
    if before:
        yield before
