"""Cells of tables that hold numbers, the lines they stand on, and whether a first line is one of names."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import Any

from unrolled.data.readers.tables.quoted import quoted_cells, separator_of

MISSING = {"", "na", "n/a", "nan", "null", "none"}


def number_of(cell: Any) -> float | None:
    """The number in a cell, NaN where it is missing, None where it is something else.

    >>> number_of(" 2.5 "), number_of("NA"), number_of("12 March"), number_of("1_000")
    (2.5, nan, None, None)
    """
    if isinstance(cell, (bool, int, float, Decimal)):
        try:
            return float(cell)
        except OverflowError:  # a whole number of hundreds of digits
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
    """`separator_of` for numbers: beside semicolons, commas that stand between digits only are decimal commas.

    >>> number_separator("1,5;2,5"), number_separator("1,5")
    (';', ',')
    """
    decimal = ";" in first_line and not re.search(r"(?<!\d),|,(?!\d)", first_line)
    return ";" if decimal else separator_of(first_line)


def split_line(line: str, separator: str, place: str) -> list[str]:
    """The cells of a line; beside semicolons a decimal comma becomes a point."""
    cells = quoted_cells(line, separator, place)
    return with_points(cells) if separator == ";" else cells


def is_header(first: Sequence[str], below: Sequence[Sequence[str]] = (), asked: Collection[str] = ()) -> bool:
    """Whether a row is one of names, by the rows below it and the names that are asked for.

    It is if all of its cells are text; or if one is text and is asked for, or names what stands below.

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
    """Whether text is the name of the cells below: they are numbers, or all empty, or dates under a word."""
    value = next((other for other in below if (number := number_of(other)) is None or number == number), None)
    if value is None or number_of(value) is not None:
        return bool(below)
    return not any(map(str.isdigit, cell)) and value.strip()[:1].isdigit()


def with_points(cells: Sequence[str]) -> list[str]:
    """Cells in which a decimal comma is a point."""
    pointed = [cell.replace(",", ".") if "," in cell else cell for cell in cells]
    return [cell if number_of(new) is None else new for cell, new in zip(cells, pointed, strict=True)]
