"""Columns of categories, such as a weekday: each value has a number, and values that training never saw are 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unrolled.data.readers.series.read_series import Numbers, Series
from unrolled.errors import UserError, note

UNKNOWN = 0
MOST = 10_000  # values of a column


def value_of(cell: Any) -> str:
    """A cell as the name of its category; "" if it is empty."""
    return "" if cell is None else str(cell).strip()


def levels_of(series: Sequence[Series], names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The values of each column in these series, sorted; the number of a value is its place, counted from 1."""
    levels = []
    for name in names:
        found = {value_of(cell) for one in series for cell in one.cells[name]} - {""}
        if not found:
            raise UserError(f"Column {name!r} has no value in the training part.", "Leave it out.")
        if len(found) > MOST:
            raise UserError(
                f"Column {name!r} has {len(found):,} different values, which are too many to embed.",
                "Leave it out of data.category_columns.",
            )
        levels.append(tuple(sorted(found)))
    return tuple(levels)


def numbers_of(
    cells: Mapping[str, Sequence[Any]], names: Sequence[str], levels: Sequence[Sequence[str]], place: str
) -> Numbers:
    """The numbers (T, Q) of cells; a note names values that training never saw."""
    columns = []
    for name, known in zip(names, levels, strict=True):
        numbers = {value: number for number, value in enumerate(known, 1)}
        values = [value_of(cell) for cell in cells[name]]
        columns.append([numbers.get(value, UNKNOWN) for value in values])
        strange = sorted({value for value in values if value and value not in numbers})
        if strange:
            note(
                f"{place}: training never saw {name} {', '.join(map(repr, strange[:5]))}"
                f"{', …' if len(strange) > 5 else ''}; read as <unknown>."
            )
    return np.array(columns, dtype=np.float64).T
