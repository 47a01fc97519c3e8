"""Cells of comma-separated files, quoted as in RFC 4180; semicolons, tabs or bars may replace the commas."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from unrolled.errors import UserError

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
LONGEST = 1 << 30  # characters of a cell; csv's own limit is 131,072
LOOKED_AT = 50  # rows that decide the separator
_CELL = re.compile(r'(?:"((?:[^"]|"")*)"|([^"\t\n]*))(\t|\n|\Z)')
_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")


def separator_of(first_line: str) -> str:
    """The separator of a .csv, from its first line: a comma, or else a semicolon, a tab or a bar.

    >>> separator_of("date,y"), separator_of("date;y"), separator_of("y")
    (',', ';', ',')
    """
    return next((separator for separator in SEPARATORS if separator in first_line), ",")


def table_separator(text: str) -> str:
    """The separator of a table, from its first rows: one that gives all rows the same number of columns wins.

    >>> table_separator("pos|fine, really|1\\nneg|poor|2\\n"), table_separator("label,text\\na,b;c\\n")
    ('|', ',')
    """
    first_line = text.lstrip("\n").split("\n", 1)[0]
    for separator in SEPARATORS:
        if separator in first_line:
            try:
                rows = [row for _, row in islice(quoted_rows(text, separator, ""), LOOKED_AT) if row]
            except UserError:
                continue
            if len(rows[0]) > 1 and len({len(row) for row in rows}) == 1:
                return separator
    return separator_of(first_line)


def tabs_are_quoted(text: str) -> bool:
    """True if a tab-separated text has quoted cells, as spreadsheets and pandas may write.

    It has if all cells except numbers are quoted; or if only cells that need quotes have them, and at least one
    contains doubled quotes, or a tab or line end that would break its row. In all other files a quote is an
    ordinary character.

    >>> tabs_are_quoted('"pos"\\t"fine"\\n"neg"\\t"poor"\\n'), tabs_are_quoted('pos\\t"fine" he said\\n')
    (True, False)
    >>> tabs_are_quoted('pos\\tfine\\nneg\\t"so ""fine"" it was"\\n'), tabs_are_quoted('pos\\t"fine"\\nneg\\tpoor\\n')
    (True, False)
    """
    if '"' not in text:
        return False
    bare = doubled = broken = False  # an unquoted text; a quoted cell with quotes, with tabs or line ends inside
    needless, at, width, widths = False, 0, 0, set()
    while at < len(text):
        cell = _CELL.match(text, at)
        if cell is None:
            return False
        inside, plain, end = cell.groups()
        if inside is None:
            bare = bare or not (not plain.strip() or _NUMBER.fullmatch(plain))
        else:
            torn = "\t" in inside or "\n" in inside
            broken, doubled = broken or torn, doubled or ('""' in inside and not torn)
            needless = needless or not re.search(r'["\t\n,]', inside)
        width += 1
        at = cell.end()
        if end != "\t":
            if width > 1 or plain or inside:
                widths.add(width)
            width = 0
    if len(widths) != 1 or widths == {1}:
        return False
    rows_as_they_stand = len({line.count("\t") for line in text.split("\n") if line}) == 1
    return not bare or (not needless and (doubled or (broken and not rows_as_they_stand)))


def quoted_rows(text: str, separator: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row, with the number of its first line."""
    return streamed_rows(io.StringIO(text, newline=""), separator, name)


def streamed_rows(lines: Iterable[str], separator: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """`quoted_rows` of lines as they arrive."""
    reader = csv.reader(lines, delimiter=separator, strict=True)
    while True:
        line = reader.line_num + 1
        row = _next(reader, f"{name}:{line}")
        if row is None:
            return
        yield line, row


def with_ends(lines: Iterable[str]) -> Iterator[str]:
    """Lines as a reader of csv takes them: with their ends, and cut at carriage returns too."""
    for line in lines:
        if "\r" in line:
            yield from io.StringIO(f"{line}\n", newline="")
        else:
            yield f"{line}\n"


def whole_rows(lines: Sequence[str]) -> Sequence[str]:
    """The lines without those of a last row that goes on in the next line: one of its cells is an open quote.

    >>> whole_rows(["a,b", "c,d", 'e,"f'])
    ['a,b', 'c,d']
    """
    quotes = list(itertools.accumulate(line.count('"') for line in lines))
    return lines[: max((at for at, count in enumerate(quotes, 1) if count % 2 == 0), default=len(lines))]


def quoted_cells(line: str, separator: str, place: str) -> list[str]:
    """The cells of one line."""
    return _next(csv.reader([line], delimiter=separator, strict=True), place) or []


def _next(reader: Iterator[list[str]], place: str) -> list[str] | None:
    before = csv.field_size_limit(LONGEST)
    try:
        return next(reader, None)
    except csv.Error as error:
        if "unexpected end of data" in str(error):
            fix = 'Close it, or double a literal quote: "".'
            raise UserError(f"{place}: a quote is not closed.", fix) from None
        raise UserError(f"{place}: {error}.", "Correct the line.") from None
    finally:
        csv.field_size_limit(before)
