"""The columns of a table with the time and the series of a row, found by name and content."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data.readers.series.times import Seconds, TimeFormat, find_format, is_time_of_day
from unrolled.errors import UserError

AUTO, NONE = "auto", "none"
TIMES = {"time", "date", "datetime", "timestamp", "ds", "ts", "epoch", "unix", "unixtime", "year", "month", "day"}
TIMES |= {"utc", "when", "zeit", "datum", "t"}
COUNTERS = {"", "index", "idx", "row", "rows", "nr", "no", "number", "step", "t", "id", "unnamed_0", "time_idx", "i"}
SERIES = {"id", "series", "uid", "store", "shop", "item", "sku", "product", "sensor", "device", "station", "site"}
SERIES |= {"location", "region", "city", "country", "meter", "machine", "household", "customer", "client", "user"}
SERIES |= {"group", "key", "ticker", "symbol", "name", "vehicle", "patient", "subject", "plant", "building", "turbine"}
NUMBERED = SERIES - {"group", "key", "name", "location", "region", "city", "country"}  # names of numbers that are ids
HOURS = {"hour", "hr", "stunde"}
MOST_TWICE = 0.1  # largest share of rows that repeat a time of their series; above it, several series are mixed


@dataclass(frozen=True)
class Keys:
    """The columns of time and series, the time of each row, and number columns without information."""

    time: tuple[str, ...] = ()
    series: tuple[str, ...] = ()
    format: TimeFormat | None = None
    seconds: Seconds | None = None  # of each row
    left_out: tuple[str, ...] = ()  # ids and epochs in other columns

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.series, *self.time)


NO_KEYS = Keys()


@dataclass(frozen=True)
class Column:
    """A candidate for the series column: a number for each of its values."""

    name: str
    codes: NDArray[np.int64]  # (rows,)
    values: int  # number of values
    text: bool


def find_keys(
    names: Sequence[str],
    columns: Sequence[Sequence[Any]],
    place: Callable[[int], str],
    *,
    time: str = AUTO,
    series: str = AUTO,
    taken: Collection[str] = (),
) -> Keys:
    """The columns of time and series: by name, `auto` to find them, or `none`.

    `taken` are the columns of inputs and targets: they cannot be the series column.
    """
    table = dict(zip(names, columns, strict=True))
    asked = _asked(table, series)
    found: tuple[tuple[str, ...], TimeFormat] | None = None
    if time == AUTO:
        found = _find_time(table, asked, taken)
    elif time != NONE:
        found = _said(table, time, place)
    seconds = None if found is None else _seconds(cells_of(table, found[0]), found[1], place, found[0])
    chosen = asked
    if series == AUTO:
        free = [one for one in _candidates(table) if one.name not in (*taken, *(found[0] if found else ()))]
        chosen = _find_series(free, seconds, list(table))
    if found is not None and found[1].kind == "number" and time == AUTO and _twice(table, chosen, seconds):
        found = seconds = None  # such as the hour of the day under the name "time"
    used = {*(found[0] if found else ()), *chosen, *taken}
    left_out = tuple(_useless(table, used, times=time == AUTO, ids=series == AUTO))
    return Keys(found[0] if found else (), chosen, found[1] if found else None, seconds, left_out)


def cells_of(table: dict[str, Sequence[Any]], names: Sequence[str]) -> Sequence[Any]:
    """The cells of a column; of a date and a time of day, both together."""
    if len(names) == 1:
        return table[names[0]]
    return [join_time(row) for row in zip(*(table[name] for name in names), strict=True)]


def join_time(cells: Sequence[Any]) -> Any:
    """Join a date and a time of day, or an hour.

    >>> join_time(["2024-01-01", "17:30"]), join_time(["2024-01-01", "5"])
    ('2024-01-01 17:30', '2024-01-01 05:00')
    """
    if len(cells) == 1:
        return cells[0]
    day, clock = str(cells[0]).strip(), str(cells[1]).strip().removesuffix(".0")
    return f"{day} {clock.zfill(2)}:00" if clock.isdecimal() else f"{day} {clock.zfill(5)}"


def columns_of(said: str) -> tuple[str, ...]:
    """Names of columns, separated by commas."""
    return tuple(name.strip() for name in said.split(",") if name.strip())


def _asked(table: dict[str, Sequence[Any]], said: str) -> tuple[str, ...]:
    """The named columns; a name may contain a comma."""
    if said in (AUTO, NONE) and said not in table:
        return ()
    return (said,) if said in table else columns_of(said)


def _said(
    table: dict[str, Sequence[Any]], said: str, place: Callable[[int], str]
) -> tuple[tuple[str, ...], TimeFormat]:
    names = _asked(table, said)
    cells = cells_of(table, names)
    found = find_format(cells, named=True)
    if found is None:
        first = next((row for row, cell in enumerate(cells) if cell not in (None, "")), 0)
        raise UserError(
            f"{place(first)}, column {said!r}: {str(cells[first])[:40]!r} is not a time.",
            "Expected dates such as 2024-01-31 17:30, or numbers. "
            "data.time_column=none reads rows in the file's order.",
        )
    return names, found


def _find_time(
    table: dict[str, Sequence[Any]], asked: Collection[str], taken: Collection[str]
) -> tuple[tuple[str, ...], TimeFormat] | None:
    """The time column: by name first, and dates before plain numbers."""
    ranked = []
    for index, (name, cells) in enumerate(table.items()):
        if name in asked:
            continue
        named = _is_time(name)
        counter = _plain(name) in COUNTERS and _counts(cells)
        found = find_format(cells, named=named or counter)
        if found is not None and (found.kind != "number" or (name not in taken and (counter or _goes_on(cells)))):
            ranked.append(((found.kind == "number", not named, index), (name,), found))
    if not ranked:
        return None
    _, names, found = min(ranked, key=lambda one: one[0])
    whole_days = found.kind == "date" or (found.kind == "pattern" and "%H" not in found.pattern)
    if whole_days:
        for name, cells in table.items():
            clock = is_time_of_day(cells) or (_plain(name) in HOURS and _hours(cells))
            together = find_format(cells_of(table, (*names, name))) if clock and name not in names else None
            if together is not None:
                return (*names, name), together
    return names, found


def _seconds(cells: Sequence[Any], form: TimeFormat, place: Callable[[int], str], names: Sequence[str]) -> Seconds:
    times = np.empty(len(cells))
    for row, cell in enumerate(cells):
        try:
            times[row] = form.seconds(cell)
        except (ValueError, TypeError, OverflowError):
            raise UserError(
                f"{place(row)}, column {','.join(names)!r}: {str(cell)[:40]!r} is not a time like those before it.",
                "Correct it; data.time_column=none reads rows in the file's order.",
            ) from None
    return times


def _candidates(table: dict[str, Sequence[Any]]) -> list[Column]:
    """Columns of text, or of whole numbers, with fewer values than rows; first those named as ids, then text."""
    found = []
    for name, cells in table.items():
        if not cells or isinstance(cells[0], (list, dict)) or _has_fractions(cells):
            continue
        known: dict[Any, int] = {}
        try:
            codes = [known.setdefault(cell, len(known)) for cell in cells]
        except TypeError:  # lists in JSON
            continue
        if None in known or "" in known:
            continue
        if 1 < len(known) <= len(codes) / 2 or (_is_series(name) and len(known) == 1):
            text = _whole(list(known)) is None
            found.append(Column(name, np.array(codes, dtype=np.int64), len(known), text))
    return sorted(found, key=lambda one: (not _is_series(one.name), not one.text))


def _find_series(candidates: Sequence[Column], seconds: Seconds | None, order: Sequence[str]) -> tuple[str, ...]:
    """The column or two columns that make times unique; else a column with the name of one."""
    if seconds is not None and (before := _duplicates(seconds, None)):
        for chosen in _choices(candidates):
            codes = _joint(chosen)
            sizes = np.unique(codes, return_counts=True)[1]
            ids = all(one.text or _is_series(one.name) for one in chosen)
            allowed = before // 10 if ids else 0  # other numbers must make times exactly unique
            if _duplicates(seconds, codes) <= allowed and (ids or (sizes.min() > 2 and sizes.min() > sizes.max() / 2)):
                return tuple(sorted((one.name for one in chosen), key=order.index))
        return ()
    for one in candidates:
        often = len(one.codes) >= 3 * one.values
        if often and (_is_series(one.name) if one.text else _is_numbered(one.name)):
            return (one.name,)
    return ()


def _choices(candidates: Sequence[Column]) -> Iterator[tuple[Column, ...]]:
    yield from ((one,) for one in candidates)
    yield from combinations([one for one in candidates if one.text or _is_series(one.name)][:8], 2)


def _joint(columns: Sequence[Column]) -> NDArray[np.int64]:
    """A number for each combination of values."""
    codes = columns[0].codes
    for one in columns[1:]:
        codes = codes * one.values + one.codes
    return codes


def _duplicates(seconds: Seconds, codes: NDArray[np.int64] | None) -> int:
    """Rows that repeat the time of an earlier row of their series."""
    keys = np.zeros(len(seconds)) if codes is None else codes
    order = np.lexsort((seconds, keys))
    return int(((np.diff(seconds[order]) == 0) & (np.diff(keys[order]) == 0)).sum())


def _twice(table: dict[str, Sequence[Any]], chosen: Sequence[str], seconds: Seconds | None) -> bool:
    assert seconds is not None
    known: dict[tuple[str, ...], int] = {}
    rows = zip(*(map(str, table[name]) for name in chosen), strict=True)
    codes = np.array([known.setdefault(row, len(known)) for row in rows], dtype=np.int64) if chosen else None
    return _duplicates(seconds, codes) > MOST_TWICE * len(seconds)


def _useless(table: dict[str, Sequence[Any]], used: Collection[str], *, times: bool, ids: bool) -> Iterator[str]:
    """Number columns that are epochs, counters or ids, without another use."""
    for name, cells in table.items():
        if name in used or _has_fractions(cells) or (whole := _whole(cells)) is None:
            continue
        unique = len(np.unique(whole)) == len(whole) > 2
        form = find_format(cells, named=False)
        epoch = form is not None and form.kind == "epoch"
        counter = unique and _plain(name) in COUNTERS and _counts(cells)
        if (times and (epoch or counter)) or (ids and _is_numbered(name) and len(np.unique(whole)) > 1):
            yield name


def _plain(name: str) -> str:
    """
    >>> _plain("Time Stamp"), _plain("Unnamed: 0"), _plain("storeID")
    ('time_stamp', 'unnamed_0', 'store_id')
    """
    parted = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.strip())
    return re.sub(r"[^a-z0-9]+", "_", parted.lower()).strip("_")


def _is_time(name: str) -> bool:
    """
    >>> [_is_time(name) for name in ("ds", "Date", "date_time", "created_at", "timestep", "temperature")]
    [True, True, True, True, False, False]
    """
    words = _plain(name).split("_")
    return words[-1] in {*TIMES, "at"} or (words[0] in TIMES and len(words) == 2) or "".join(words) in TIMES


def _is_series(name: str) -> bool:
    """
    >>> [_is_series(name) for name in ("unique_id", "Store", "store_nbr", "item name", "storage")]
    [True, True, True, True, False]
    """
    words = _plain(name).split("_")
    return words[-1] in SERIES or (words[0] in SERIES and words[-1] in ("nbr", "nr", "no", "number", "code", "name"))


def _is_numbered(name: str) -> bool:
    """True if numbers under this name are ids."""
    words = _plain(name).split("_")
    return words[-1] in NUMBERED or (words[0] in NUMBERED and words[-1] in ("nbr", "nr", "no", "number", "code"))


def _whole(cells: Sequence[Any]) -> NDArray[np.float64] | None:
    """Cells as whole numbers; None if one is not."""
    if _floats(cells[:100]) is None:
        return None
    values = _floats(cells)
    return values if values is not None and bool((values == np.round(values)).all()) else None


def _has_fractions(cells: Sequence[Any]) -> bool:
    """True if most of the first cells are numbers and some have fractions, so that they are not ids."""
    found = [_floats([cell]) for cell in cells[:100]]
    numbers = [float(one[0]) for one in found if one is not None]
    return len(numbers) > len(found) / 2 and not all(number.is_integer() for number in numbers)


def _floats(cells: Sequence[Any]) -> NDArray[np.float64] | None:
    if any(isinstance(cell, str) and "_" in cell for cell in cells[:100]):
        return None
    try:
        values = np.array(cells).astype(np.float64)
    except (ValueError, TypeError, OverflowError):
        return None
    return values if values.ndim == 1 and bool(np.isfinite(values).all()) else None


def _counts(cells: Sequence[Any]) -> bool:
    """True if cells are whole numbers that rise or fall by 1 within each series."""
    whole = _whole(cells)
    if whole is None or len(whole) < 3:
        return False
    return bool((np.abs(np.diff(whole)) == 1).mean() > 0.5) and bool((np.diff(np.unique(whole)) == 1).all())


def _goes_on(cells: Sequence[Any]) -> bool:
    """True if numbers in a time column increase at a regular step: 0, 0.5, 1 …"""
    values = _floats(cells)
    if values is None or len(values) < 3:
        return False
    steps, changes = np.diff(np.unique(values)), np.diff(values)
    one_way = max((changes >= 0).mean(), (changes <= 0).mean()) > 0.9
    return bool(one_way) and len(steps) > 1 and bool(np.isclose(steps, np.median(steps), rtol=0.01).mean() > 0.5)


def _hours(cells: Sequence[Any]) -> bool:
    whole = _whole(cells)
    return whole is not None and bool(((whole >= 0) & (whole < 24)).all())
