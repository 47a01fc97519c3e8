"""Times of rows: parsing of dates, times and epochs to seconds; the step between rows, gaps and duplicates."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["iso", "date", "pattern", "epoch", "digits", "number", "object"]
Seconds = NDArray[np.float64]

EPOCH = datetime(1970, 1, 1)
EARLIEST, LATEST = 315_532_800, 4_102_444_800  # 1980 and 2100 in seconds since 1970
EPOCH_UNITS = (1.0, 1e3, 1e6, 1e9)  # seconds, milliseconds, microseconds, nanoseconds
DAYS = ("%d.%m.%Y", "%Y/%m/%d", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y", "%Y.%m.%d", "%m/%d/%y", "%d/%m/%y", "%d.%m.%y")
DAYS_IN_WORDS = ("%d %b %Y", "%d-%b-%Y", "%b %d, %Y", "%d %B %Y", "%B %d, %Y", "%b %Y", "%d-%b-%y", "%a %b %d %Y")
CLOCKS = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p", "T%H:%M", "T%H:%M:%S")
LOOKED_AT = 100  # cells that decide the format
MOST = 0.9  # share of them that must be times; the others are reported as errors
_TIME_OF_DAY = re.compile(r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?")
_TO_MINUTES = re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{1,2}:\d{2}")
_MONTH = re.compile(r"\d{4}-\d{2}")


@dataclass(frozen=True)
class TimeFormat:
    """The format of a time column: `seconds` parses a cell, `cell` writes one.

    Times without a zone are not converted. Plain numbers that are not epochs keep their own unit.

    >>> found = find_format(["01.02.2024 00:00", "01.02.2024 01:00", "13.02.2024 02:00"])
    >>> found.pattern, found.cell(found.seconds("01.02.2024 01:00") + 3600)
    ('%d.%m.%Y %H:%M', '01.02.2024 02:00')
    """

    kind: Kind
    pattern: str = ""
    unit: float = 1.0  # of an epoch: units per second
    minutes: bool = False  # of ISO times: without seconds

    @property
    def of_calendar(self) -> bool:
        """True if the times are seconds since 1970, False for numbers in their own unit."""
        return self.kind != "number"

    def seconds(self, cell: Any) -> float:
        """The time of a cell; ValueError if it is not a time."""
        if isinstance(cell, datetime):
            return _since_epoch(cell)
        if isinstance(cell, date):
            return _since_epoch(datetime(cell.year, cell.month, cell.day))
        if self.kind in ("epoch", "number"):
            value = float(cell)
            if not math.isfinite(value):
                raise ValueError("no number")
            return value / self.unit
        text = str(cell).strip()
        if self.kind == "digits":
            return _since_epoch(datetime.strptime(text.removesuffix(".0"), "%Y%m%d"))
        if self.kind == "pattern":
            return _since_epoch(datetime.strptime(text, self.pattern))
        return _since_epoch(_iso(text))

    def cell(self, seconds: float) -> str | float | int:
        """A time in this format."""
        if self.kind in ("epoch", "number"):
            value = round(seconds * self.unit, 6)
            return int(value) if value == int(value) else value
        moment = EPOCH + timedelta(seconds=round(seconds, 6))
        if self.kind in ("pattern", "digits"):
            return moment.strftime(self.pattern or "%Y%m%d")
        if self.kind == "date":
            return moment.strftime("%Y-%m-%d" if self.pattern != "month" else "%Y-%m")
        whole = self.minutes and moment.second == moment.microsecond == 0
        return moment.isoformat(sep="T" if self.pattern == "T" else " ", timespec="minutes" if whole else "auto")


def find_format(cells: Sequence[Any], *, named: bool = False) -> TimeFormat | None:
    """The time format of cells, which nearly all of the first must have; None if they are not times.

    Whole numbers are times only if they look like epochs; in a column `named` like a time, other numbers count too. If
    day and month are ambiguous, the format with the more regular steps wins, in days or in months; then the one that
    spans less time.
    """
    cells = [cell for cell in cells if cell is not None and cell != ""]
    if not cells:
        return None
    first = cells[:LOOKED_AT]
    if all(isinstance(cell, date) for cell in first):
        whole = all(not isinstance(cell, datetime) for cell in first)
        return TimeFormat("date" if whole else "object")
    if (numbers := _numbers(first)) is not None:
        if not named and not ((numbers == np.round(numbers)) & (numbers >= EARLIEST)).all():
            return None
        return _number_format(numbers, _numbers(cells), named)
    if sum(isinstance(cell, str) for cell in first) < MOST * len(first):
        return None
    texts = [cell.strip() for cell in cells if isinstance(cell, str)]
    iso = [text for text in texts[:LOOKED_AT] if _is_iso(text)]
    if len(iso) >= MOST * len(first):
        return _iso_format(iso[0])
    if sum(any(map(str.isdigit, text)) for text in texts[:LOOKED_AT]) < MOST * len(first):
        return None
    some = [texts[i] for i in _sampled(len(texts))]
    fitting = [TimeFormat("pattern", pattern) for pattern in _patterns() if _share(pattern, texts[:5]) > 0]
    shares = {one: _share(one.pattern, some) for one in fitting}
    fitting = [one for one in fitting if shares[one] >= max(MOST, *shares.values())]
    if len(fitting) < 2:
        return fitting[0] if fitting else None
    return max(fitting, key=lambda one: _order_of_days(one, texts))


def is_time_of_day(cells: Sequence[Any]) -> bool:
    """True if cells are times of day, such as 17:30, which complete a column of dates."""
    return bool(cells) and all(isinstance(c, str) and _TIME_OF_DAY.fullmatch(c.strip()) for c in cells[:LOOKED_AT])


def _iso_format(first: str) -> TimeFormat:
    if _MONTH.fullmatch(first):
        return TimeFormat("date", "month")
    if len(first) == 10:
        return TimeFormat("date")
    return TimeFormat("iso", "T" if "T" in first else "", minutes=bool(_TO_MINUTES.fullmatch(first)))


def _number_format(first: Seconds, whole: Seconds | None, named: bool) -> TimeFormat | None:
    if whole is None:
        return None
    if (whole == np.round(whole)).all():
        for unit in EPOCH_UNITS:
            if ((whole >= EARLIEST * unit) & (whole <= LATEST * unit)).all():
                regular = _regularity(np.unique(whole)) >= 0.5 and len(np.unique(whole)) > 2
                return TimeFormat("epoch", unit=unit) if named or regular else None
    if not named:
        return None
    if ((whole >= 19000101) & (whole <= 21001231)).all() and all(_fits("%Y%m%d", [f"{v:.0f}"]) for v in first):
        return TimeFormat("digits")
    return TimeFormat("number")


def _numbers(cells: Sequence[Any]) -> Seconds | None:
    """Cells as numbers; None if one is not."""
    if any(isinstance(cell, bool) or (isinstance(cell, str) and "_" in cell) for cell in cells):
        return None
    try:
        values = np.array(cells, dtype=object).astype(np.float64)
    except (ValueError, TypeError, OverflowError):
        return None
    return values if values.ndim == 1 and np.isfinite(values).all() else None


def _iso(text: str) -> datetime:
    if _MONTH.fullmatch(text):
        text += "-01"
    elif re.fullmatch(r"\d{4}-\d{2}-\d{2}[ T]\d{1}:.*", text):  # 2024-01-01 5:00
        text = f"{text[:11]}0{text[11:]}"
    return datetime.fromisoformat(text.removesuffix(" UTC"))


def _is_iso(text: str) -> bool:
    if len(text) < 7 or text[4:5] != "-":
        return False
    try:
        _iso(text)
    except ValueError:
        return False
    return True


def _fits(pattern: str, texts: Sequence[str]) -> bool:
    try:
        for text in texts:
            datetime.strptime(text, pattern)
    except ValueError:
        return False
    return True


def _share(pattern: str, texts: Sequence[str]) -> float:
    return sum(_fits(pattern, [text]) for text in texts) / max(1, len(texts))


def _patterns() -> list[str]:
    return [day + clock for day in (*DAYS, *DAYS_IN_WORDS) for clock in CLOCKS]


def _sampled(number: int) -> list[int]:
    """Cells sampled over the whole column, to distinguish days from months."""
    return np.linspace(0, number - 1, min(number, 2000)).astype(int).tolist()  # type: ignore[no-any-return]


def _since_epoch(moment: datetime) -> float:
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return (moment - EPOCH).total_seconds()


def _regularity(times: Seconds) -> float:
    """The share of the most common difference between neighbours."""
    differences = np.diff(times)
    if not len(differences):
        return 0.0
    return float(np.unique(differences, return_counts=True)[1].max() / len(differences))


def _order_of_days(form: TimeFormat, texts: Sequence[str]) -> tuple[float, float]:
    """A sort key for formats: the regularity of the days, then the negative time span.

    The days are sorted and unique, since rows of several series may alternate and have any order.
    """
    days = []
    for text in {text.replace("T", " ").partition(" ")[0]: text for text in texts}.values():
        with contextlib.suppress(ValueError):
            days.append(form.seconds(text) // 86400 * 86400)
    times = np.unique(days)
    regular, differences = _regularity(times), np.diff(times)
    if len(differences) and np.median(differences) >= 28 * 86400:
        regular = max(regular, _regularity(_months(times).astype(np.float64)))
    return round(regular, 9), -float(np.ptp(times)) if len(times) else 0.0


@dataclass(frozen=True)
class TimeStep:
    """The usual time between two rows: `size` seconds or months, or numbers in the column's own unit."""

    size: float
    unit: Literal["seconds", "months", "numbers"] = "seconds"

    def __str__(self) -> str:
        """
        >>> str(TimeStep(3600)), str(TimeStep(900)), str(TimeStep(1, "months")), str(TimeStep(2, "numbers"))
        ('hourly', '15 minutes', 'monthly', '2')
        """
        if self.unit == "numbers":
            return f"{self.size:g}"
        usual = {("seconds", 86400.0): "daily", ("seconds", 604800.0): "weekly", ("seconds", 3600.0): "hourly"}
        usual |= {("months", 1.0): "monthly", ("months", 3.0): "quarterly", ("months", 12.0): "yearly"}
        return usual.get((self.unit, float(self.size)), self.words())

    def words(self, times: float = 1) -> str:
        """A number of steps as a duration in words."""
        size = self.size * times
        if self.unit == "numbers":
            return f"{size:g}"
        units = [("year", 12), ("month", 1)] if self.unit == "months" else UNITS
        name, one = next(((name, one) for name, one in units if size >= one), units[-1])
        return f"{size / one:.4g} {name}{'' if size == one else 's'}"

    def later(self, seconds: float, steps: int) -> float:
        """The time after a number of steps."""
        if self.unit != "months":
            return seconds + self.size * steps
        moment = EPOCH + timedelta(seconds=seconds)
        month = moment.year * 12 + moment.month - 1 + int(self.size) * steps
        first = _first_of(month)
        last = (_first_of(month + 1) - timedelta(days=1)).day
        ends = (moment + timedelta(days=1)).day == 1  # the last day of a month stays the last
        return _since_epoch(
            moment.replace(year=first.year, month=first.month, day=last if ends else min(moment.day, last))
        )


UNITS = [("week", 604800), ("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1), ("millisecond", 1e-3)]


def _first_of(month: int) -> datetime:
    return datetime(month // 12, month % 12 + 1, 1)


def find_step(runs: Sequence[Seconds], *, of_calendar: bool) -> TimeStep | None:
    """The most common nonzero difference of sorted times; None with fewer than two times."""
    differences = np.concatenate([np.diff(run) for run in runs]) if runs else np.zeros(0)
    differences = differences[differences > 0]
    if not len(differences):
        return None
    sizes, counts = np.unique(np.round(differences, 6), return_counts=True)
    usual = float(sizes[counts.argmax()])
    if of_calendar and 28 * 86400 <= np.median(differences) <= 366 * 86400:
        months = np.concatenate([np.diff(_months(run)) for run in runs])
        months = months[months > 0]
        if len(months) and _same_days(runs):
            return TimeStep(float(np.bincount(months).argmax()), "months")
    return TimeStep(usual, "seconds" if of_calendar else "numbers")


def _months(times: Seconds) -> NDArray[np.int64]:
    return times.astype("datetime64[s]").astype("datetime64[M]").astype(np.int64)


def _same_days(runs: Sequence[Seconds]) -> bool:
    """True if all times are on the same day of the month, or all on its last day."""
    times = np.concatenate(list(runs)).astype("datetime64[s]").astype("datetime64[D]")
    month = times.astype("datetime64[M]")
    days = (times - month.astype("datetime64[D]")).astype(int)
    last = (times + 1).astype("datetime64[M]") != month
    return bool((days == days[0]).all() or last.all())


@dataclass(frozen=True)
class Timeline:
    """The times of all series of a file: their step, gaps and duplicates."""

    step: TimeStep | None
    gaps: int = 0  # places where rows are missing
    longest: float = 0.0  # the longest of them, in steps
    duplicates: int = 0  # rows that repeat the time before them
    irregular: float = 0.0  # share of differences that are not a whole number of steps

    def __str__(self) -> str:
        if self.step is None:
            return "no step"
        parts = [f"{'' if self.irregular < 0.5 else 'irregular, mostly '}{self.step}"]
        if self.gaps:
            parts.append(f"{self.gaps:,} gap{'s' * (self.gaps > 1)}, the longest {self.step.words(self.longest)}")
        if self.duplicates:
            parts.append(f"{self.duplicates:,} duplicate time{'s' * (self.duplicates > 1)}")
        return "; ".join(parts)


def timeline_of(runs: Sequence[Seconds], *, of_calendar: bool) -> Timeline:
    """The timeline of the sorted times of each series."""
    step = find_step(runs, of_calendar=of_calendar)
    if step is None:
        return Timeline(None, duplicates=sum(max(0, len(run) - 1) for run in runs))
    count: Callable[[Seconds], NDArray[Any]] = _months if step.unit == "months" else lambda run: run
    steps = np.concatenate([np.diff(count(run)) for run in runs]) / step.size
    duplicates = int((np.concatenate([np.diff(run) for run in runs]) == 0).sum())
    odd = np.abs(steps - np.round(steps)) > 0.01
    gaps = steps > 1.5
    longest = float(steps[gaps].max()) if gaps.any() else 0.0
    return Timeline(step, int(gaps.sum()), longest, duplicates, float(odd.mean()))


class Clock:
    """Follows arriving times and detects when they go back; an ambiguous format is decided by later rows.

    >>> clock = Clock()
    >>> [clock.goes_back(cell) for cell in ("2024-01-01", "2024-01-02", "2024-01-01")]
    [False, False, True]
    """

    def __init__(self) -> None:
        self._formats: list[TimeFormat] | None = None
        self._last: dict[TimeFormat, float] = {}

    def goes_back(self, cell: Any) -> bool:
        """True if a time precedes the last one in every possible format; other cells are ignored."""
        if self._formats is None:
            found = find_format([cell], named=True)
            several = [TimeFormat("pattern", pattern) for pattern in _patterns() if _fits(pattern, [str(cell).strip()])]
            self._formats = several if found is not None and found.kind == "pattern" else [found] if found else []
        times = {}
        for one in self._formats:
            with contextlib.suppress(ValueError, TypeError, OverflowError):
                times[one] = one.seconds(cell)
        back = bool(times) and all(time < self._last.get(one, -math.inf) for one, time in times.items())
        self._last = times or self._last
        self._formats = list(times) or self._formats
        return back
