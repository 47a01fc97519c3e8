"""Cells with numbers: parsing, decimal commas, and detection of a header above them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import Any

from unrolled.data.readers.tables.quoted import quoted_cells, separator_of

MISSING = {"", "na", "n/a", "nan", "null", "none"}


def number_of(cell: Any) -> float | None:
    """The number in a cell, NaN if it is missing, None for any other text.

    >>> number_of(" 2.5 "), number_of("NA"), number_of("12 March"), number_of("1_000")
    (2.5, nan, None, None)
    """
    if isinstance(cell, (bool, int, float, Decimal)):
        try:
            return float(cell)
        except OverflowError:  # an integer of hundreds of digits
            return float("inf")
    if cell is None:
        return float("nan")
    if not isinstance(cell, str):
        return None
    text = cell.strip().lower()
    if text in MISSING:
        return float("nan")
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def number_separator(first_line: str) -> str:
    """`separator_of` for numbers: next to semicolons, commas between digits are decimal commas.

    >>> number_separator("1,5;2,5"), number_separator("1,5")
    (';', ',')
    """
    decimal = ";" in first_line and not re.search(r"(?<!\d),|,(?!\d)", first_line)
    return ";" if decimal else separator_of(first_line)


def split_line(line: str, separator: str, place: str) -> list[str]:
    """The cells of a line; with semicolons, decimal commas become points."""
    cells = quoted_cells(line, separator, place)
    return with_points(cells) if separator == ";" else cells


def is_header(first: Sequence[str], below: Sequence[Sequence[str]] = (), asked: Collection[str] = ()) -> bool:
    """True if a row is a header, judged by the rows below it and the column names in the config.

    It is if all of its cells are text, or if one is text and is a configured name or fits the cells below.

    >>> is_header(["day", "y"], [["2020-01-01", "20"]]), is_header(["2020-01-01", "20"], [["2020-01-02", "21"]])
    (True, False)
    """
    numbers = [number_of(cell) for cell in first]
    text = [i for i, number in enumerate(numbers) if number is None]
    if not text or len(text) == len(first):
        return bool(text)
    if not below and all(number is None or number != number for number in numbers):
        return True
    return any(first[i].strip() in asked or _names(first[i], [row[i] for row in below]) for i in text)


def _names(cell: str, below: Sequence[str]) -> bool:
    """True if text can name the cells below: they are numbers, all empty, or dates under a word."""
    value = next((other for other in below if (number := number_of(other)) is None or number == number), None)
    if value is None or number_of(value) is not None:
        return bool(below)
    return not any(map(str.isdigit, cell)) and value.strip()[:1].isdigit()


def with_points(cells: Sequence[str]) -> list[str]:
    """Cells with decimal commas replaced by points."""
    pointed = [cell.replace(",", ".") if "," in cell else cell for cell in cells]
    return [cell if number_of(new) is None else new for cell, new in zip(cells, pointed, strict=True)]
