"""Pairs of texts, a source and its target: two columns of a table, or two files line by line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unrolled.data.readers.tables.read_table import Row, read_table
from unrolled.data.readers.text import read_lines
from unrolled.errors import UserError

FURTHER = r"target_?[2-9]|target_?[1-9]\d+|references?"  # names of columns with further targets


@dataclass(frozen=True)
class Pair:
    """A source, its target, their place in the file, and further targets, which are references of the same source."""

    source: str
    target: str
    place: str = ""
    others: tuple[str, ...] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        """The target and the further ones."""
        return (self.target, *self.others)

    @property
    def empty(self) -> bool:
        """True if one side is blank."""
        return not self.source.strip() or not self.target.strip()


def read_pairs(path: str | Path, *, source_column: str | None = None, target_column: str | None = None) -> list[Pair]:
    """The pairs of a table: columns `source` and `target`, or synonyms; without a header, source TAB target.

    Further targets of a source are in columns `target2`, `target3`, … or `references`, in several columns that are
    named with commas, or in a list of texts in JSON and Parquet. A list of tokens without blanks is one text.
    """
    first, *more = (target_column or "").split(",")
    columns = [source_column, first.strip() or None]
    further = [name.strip() for name in more if name.strip()]
    alike = FURTHER if not further else ""
    rows = read_table(path, columns, ["source", "target"], keep=further, alike=alike)
    several = any(_holds_texts(row.values[1]) for row in rows)
    return [_pair(row, several) for row in rows]


def read_parallel(source: str | Path, target: str | Path, *others: str | Path) -> list[Pair]:
    """The pairs of text files: line n of one belongs to line n of the others, which are further targets."""
    sides = []
    for path in map(Path, (source, target, *others)):
        lines = None if path.suffix in (".csv", ".jsonl", ".json", ".parquet") else read_lines(path)
        if lines is None or (path.suffix == ".tsv" and any("\t" in line for line in lines)):
            raise UserError(f"{path} is a table; expected lines of text.", "Give the table alone.")
        sides.append(lines)
        if len(lines) != len(sides[0]):
            raise UserError(
                f"{source} has {len(sides[0]):,} lines, {path} has {len(lines):,}.",
                "Expected the same number in both: line n of one is the translation of line n of the other.",
            )
    rows = enumerate(zip(*sides, strict=True), 1)
    return [Pair(s, t, f"{source}:{n}", tuple(more)) for n, (s, t, *more) in rows]


def without_empty(pairs: Sequence[Pair]) -> tuple[list[Pair], int]:
    """The pairs without blank sides, and the number of others."""
    whole = [pair for pair in pairs if not pair.empty]
    return whole, len(pairs) - len(whole)


def each_target(pairs: Sequence[Pair]) -> list[Pair]:
    """A pair for each target of each source."""
    return [Pair(pair.source, target, pair.place) for pair in pairs for target in pair.targets]


def _pair(row: Row, several: bool) -> Pair:
    """The pair of a row; `several`: a list in the target's column holds texts, not the tokens of one."""
    source, target = row.values
    targets = [*(target if several and isinstance(target, list) and target else [target])]
    for value in row.kept.values():  # an empty cell is no reference
        targets += [one for one in (value if isinstance(value, list) else [value]) if one not in (None, "")]
    texts = [_text(row, "target", one) for one in targets]
    return Pair(_text(row, "source", source), texts[0], row.place, tuple(texts[1:]))


def _text(row: Row, side: str, value: object) -> str:
    text = "" if value is None else " ".join(map(str, value)) if isinstance(value, list) else value
    if not isinstance(text, str):
        raise UserError(f"{row.place}: the {side} is {type(value).__name__} {value!r}.", "Expected a text.")
    return text


def _holds_texts(value: object) -> bool:
    """True for a list of texts: one has a blank inside, so that they are not the tokens of one text."""
    return isinstance(value, list) and any(isinstance(one, str) and " " in one.strip() for one in value)
