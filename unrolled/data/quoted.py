"""Cells of comma-separated files, quoted as in RFC 4180; semicolons or tabs may stand for the commas."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from unrolled.errors import UserError

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab"}
LONGEST = 1 << 30  # characters of a cell; csv's own limit is 131,072


def separator_of(first_line: str) -> str:
    """What stands between the columns of a table whose name ends in .csv: a comma, or else a semicolon or a tab.

    >>> separator_of("date,y"), separator_of("date;y"), separator_of("y")
    (',', ';', ',')
    """
    return next((separator for separator in SEPARATORS if separator in first_line), ",")


def quoted_rows(text: str, separator: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row, and the line where it begins."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    while True:
        line = reader.line_num + 1
        row = _next(reader, f"{name}:{line}")
        if row is None:
            return
        yield line, row


def quoted_cells(line: str, separator: str, place: str) -> list[str]:
    """The cells of a line that is a row by itself."""
    return _next(csv.reader([line], delimiter=separator, strict=True), place) or []


def _next(reader: Iterator[list[str]], place: str) -> list[str] | None:
    before = csv.field_size_limit(LONGEST)
    try:
        return next(reader, None)
    except csv.Error as error:
        if "unexpected end of data" in str(error):
            fix = 'Close it, or double it where it is meant itself: "".'
            raise UserError(f"{place}: a quote is not closed.", fix) from None
        raise UserError(f"{place}: {error}.", "Correct the line.") from None
    finally:
        csv.field_size_limit(before)
