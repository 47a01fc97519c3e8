"""Tables and columns of other libraries as rows: pandas, polars, pyarrow, and Hugging Face's datasets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unrolled.data.memory.sources import HeldRows, Source
from unrolled.data.memory.spool import spooled
from unrolled.errors import UserError

LIBRARIES = ("pandas", "polars", "pyarrow", "datasets")
TIMES = ("DatetimeIndex", "PeriodIndex")


def library_of(given: Any) -> str | None:
    """The library of an object's class, if it is one of those whose tables are read."""
    roots = (cls.__module__.partition(".")[0] for cls in type(given).__mro__)
    return next((root for root in roots if root in LIBRARIES), None)


def is_table(given: Any) -> bool:
    """True for a table of one of the libraries."""
    library = library_of(given)
    return library is not None and _table(given, library) is not None


def table_source(given: Any, library: str) -> HeldRows | None:
    """The rows of a table; None for another object of the library."""
    found = _table(given, library)
    if found is None:
        return None
    names, count, get, named = found
    texts = tuple(map(str, names))
    if len(set(texts)) < len(texts):
        twice = next(name for name in texts if texts.count(name) > 1)
        raise UserError(f"The {type(given).__name__} has two columns {twice!r}.", "Give each a different name.")
    title = f"{type(given).__name__} with {count:,} {'row' if count == 1 else 'rows'}"
    return HeldRows(title, texts, count, get, named)


def _table(given: Any, library: str) -> tuple[Sequence[Any], int, Any, bool] | None:
    """Names, number of rows, the values of a column by its place, and whether the columns have names of their own."""
    kind = type(given).__name__
    if library == "pandas" and hasattr(given, "columns") and hasattr(given, "iloc"):
        return _pandas_table(given)
    if library == "polars" and kind in ("DataFrame", "LazyFrame"):
        frame = given.collect() if kind == "LazyFrame" else given
        return frame.columns, frame.height, lambda at: frame.to_series(at).to_list(), True
    if library == "pyarrow" and hasattr(given, "column_names") and hasattr(given, "to_pylist"):
        return given.column_names, given.num_rows, lambda at: given.column(at).to_pylist(), True
    if library == "datasets" and kind in ("Dataset", "IterableDataset"):
        return _hugging_face_table(given)
    return None


def column_source(given: Any, library: str, *, as_rows: bool = False) -> Source | None:
    """A column: texts, or the rows of one column and its index; None for an object that is no column."""
    if library == "pandas" and hasattr(given, "to_frame") and hasattr(given, "array"):
        name = given.name if getattr(given, "name", None) is not None else "value"
        frame = given.to_frame(name) if hasattr(given, "index") else given.to_frame(index=False, name=name)
        rows = table_source(frame, library)
    elif library == "polars" and hasattr(given, "to_frame"):
        rows = table_source(given.alias(given.name or "value").to_frame(), library)
    elif library == "pyarrow" and hasattr(given, "to_pylist"):
        values = given.to_pylist()
        rows = HeldRows(f"{type(given).__name__} with {len(values):,} rows", ("value",), len(values), lambda at: values)
    else:
        return None
    assert rows is not None
    last = len(rows.names) - 1
    kind = type(given).__name__
    if not as_rows and isinstance(rows.first(last), str):
        values = rows.get(last)
        for row, one in enumerate(values):
            if not isinstance(one, str):
                raise UserError(f"{kind}, row {row} is {type(one).__name__}, not a text.", "Leave it out: dropna().")
        return spooled(values, kind)
    return HeldRows(f"{kind} with {rows.count:,} rows", rows.names, rows.count, rows.get)


def column_values(given: Any) -> list[Any] | None:
    """The values of a column of one of the libraries; None for another object."""
    library = library_of(given)
    if library is None:
        return None
    if library == "datasets" and type(given).__name__ == "Column":
        return list(given)
    source = column_source(given, library, as_rows=True)
    return source.get(len(source.names) - 1) if isinstance(source, HeldRows) else None


def _pandas_table(frame: Any) -> tuple[Sequence[Any], int, Any, bool]:
    """The columns, after those of an index that has a name or holds times."""
    if frame.columns.nlevels > 1:
        raise UserError("The DataFrame has columns of several levels.", "Give one: df.columns = […]")
    index, inside = frame.index, list[tuple[Any, Any]]()
    if type(index).__name__ != "RangeIndex" or index.name is not None:
        for level in range(index.nlevels):
            values = index.get_level_values(level)
            name = values.name
            if name is None and type(values).__name__ in TIMES and index.nlevels == 1:
                name = "time"
            if name is not None and name not in frame.columns:
                inside.append((name, values))
    named = type(frame.columns).__name__ != "RangeIndex"  # else columns are numbered, from 1 as in files
    columns = [(name if named else at + 1, frame.iloc[:, at]) for at, name in enumerate(frame.columns)]
    both = [*inside, *columns]
    return [name for name, _ in both], len(frame), lambda at: _pandas_values(both[at][1]), named


def _pandas_values(column: Any) -> list[Any]:
    """Python's own values; None where one is missing, in columns that are not of floats."""
    if type(column.dtype).__name__ == "PeriodDtype":
        column = column.to_timestamp() if hasattr(column, "to_timestamp") else column.dt.to_timestamp()
    values = [one.item() if isinstance(one, np.generic) else one for one in column.tolist()]
    if getattr(column.dtype, "kind", "O") == "f" and isinstance(column.dtype, np.dtype):
        return values
    return [None if gone else one for one, gone in zip(values, column.isna().tolist(), strict=True)]


def _hugging_face_table(table: Any) -> tuple[Sequence[Any], int, Any, bool] | None:
    """The columns of a Dataset; of one that is iterated, those of all its rows. Classes have their names."""
    features = table.features or {}
    if hasattr(table, "num_rows"):
        plain, names = table.with_format(None), list(table.column_names)
        return names, table.num_rows, lambda at: _with_names(list(plain[names[at]]), features.get(names[at])), True
    rows = list(table)
    if not rows:
        return None
    named = list(rows[0])
    return named, len(rows), lambda at: _with_names([row[named[at]] for row in rows], features.get(named[at])), True


def _with_names(values: list[Any], feature: Any) -> list[Any]:
    """Values of a column; whole numbers that stand for classes as the names of these."""
    inner = getattr(feature, "feature", feature[0] if isinstance(feature, list) and feature else feature)
    names = getattr(inner, "names", None)
    if not isinstance(names, list):
        return values

    def named(one: Any) -> Any:
        if isinstance(one, list):
            return [named(each) for each in one]
        return names[one] if isinstance(one, int) and 0 <= one < len(names) else None

    return [named(one) for one in values]
