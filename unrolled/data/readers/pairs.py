"""Pairs of texts, a source and its target: two columns of a table, or two files line by line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unrolled.data.readers.tables.read_table import Row, read_table
from unrolled.data.readers.text import read_lines
from unrolled.errors import UserError


@dataclass(frozen=True)
class Pair:
    """A source, its target, and their place in the file."""

    source: str
    target: str
    place: str = ""

    @property
    def empty(self) -> bool:
        """True if one side is blank."""
        return not self.source.strip() or not self.target.strip()


def read_pairs(path: str | Path, *, source_column: str | None = None, target_column: str | None = None) -> list[Pair]:
    """The pairs of a table: columns `source` and `target`, or synonyms; without a header, source TAB target."""
    rows = read_table(path, [source_column, target_column], ["source", "target"])
    return [_pair(row) for row in rows]


def read_parallel(source: str | Path, target: str | Path) -> list[Pair]:
    """The pairs of two text files: line n of one belongs to line n of the other."""
    sides = []
    for path in map(Path, (source, target)):
        lines = None if path.suffix in (".csv", ".jsonl", ".json", ".parquet") else read_lines(path)
        if lines is None or (path.suffix == ".tsv" and any("\t" in line for line in lines)):
            raise UserError(f"{path} is a table; expected lines of text.", "Give the table alone.")
        sides.append(lines)
    sources, targets = sides
    if len(sources) != len(targets):
        raise UserError(
            f"{source} has {len(sources):,} lines, {target} has {len(targets):,}.",
            "Expected the same number in both: line n of one is the translation of line n of the other.",
        )
    return [Pair(s, t, f"{source}:{n}") for n, (s, t) in enumerate(zip(sources, targets, strict=True), 1)]


def without_empty(pairs: Sequence[Pair]) -> tuple[list[Pair], int]:
    """The pairs without blank sides, and the number of others."""
    whole = [pair for pair in pairs if not pair.empty]
    return whole, len(pairs) - len(whole)


def _pair(row: Row) -> Pair:
    texts = []
    for side, value in zip(("source", "target"), row.values, strict=True):
        text = "" if value is None else " ".join(map(str, value)) if isinstance(value, list) else value
        if not isinstance(text, str):
            raise UserError(f"{row.place}: the {side} is {type(value).__name__} {value!r}.", "Expected a text.")
        texts.append(text)
    return Pair(texts[0], texts[1], row.place)
