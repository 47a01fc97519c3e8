"""Times, series and periods in tables: found by name and content, sorted, and said."""

from __future__ import annotations

import csv
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unrolled.data.readers.series.read_series import Sheet, read_series
from unrolled.data.readers.series.times import Clock, TimeStep, find_format, timeline_of
from unrolled.data.signals.season import find_period, repeated
from unrolled.errors import Note, UserError

START = datetime(2024, 1, 30)
HOURS = [START + timedelta(hours=i) for i in range(60)]
EPOCH = datetime(1970, 1, 1)


def write(path: Path, header: list[str], rows: list[list[Any]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def auto(path: Path, **more: Any) -> Sheet:
    return read_series(path, time_column="auto", sequence_column="auto", **more)


@pytest.mark.parametrize(
    "pattern",
    [
        *("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%MZ", "%d.%m.%Y %H:%M", "%m/%d/%Y %H:%M"),
        *("%d/%m/%Y %H:%M", "%Y/%m/%d %H:%M:%S", "%d-%b-%Y %H:%M:%S", "%m/%d/%Y %I:%M %p", "%b %d, %Y %H:%M"),
    ],
)
def test_the_usual_formats(pattern: str) -> None:
    """Day and month are told apart by what follows what, where both could be."""
    cells = [time.strftime(pattern) for time in HOURS]
    found = find_format(cells)
    assert found is not None
    assert [found.seconds(cell) for cell in cells] == [(time - EPOCH).total_seconds() for time in HOURS]


FIRST_MONDAYS = [datetime(year, month, 1) for year in range(2010, 2015) for month in range(1, 13)]
FIRST_MONDAYS = [first + timedelta(days=-first.weekday() % 7) for first in FIRST_MONDAYS]


@pytest.mark.parametrize("pattern", ["%m/%d/%Y", "%d/%m/%Y", "%m/%d/%y", "%d/%m/%y %H:%M"])
@pytest.mark.parametrize(
    ("times", "step"),
    [
        ([datetime(2010 + i // 12, 1 + i % 12, 1) for i in range(120)], "monthly"),
        ([datetime(2010 + i // 12, 1 + i % 12, 5) for i in range(120) if i % 7], "monthly; 16 gaps, the longest 2 mon"),
        ([datetime(2010 + i // 4, 1 + 3 * (i % 4), 1) for i in range(40)], "quarterly"),
        (FIRST_MONDAYS, ""),
        ([datetime(2024, 2, 1) + timedelta(days=i) for i in range(9)], "daily"),
        ([datetime(2024, 2, 1) + timedelta(hours=12 * i) for i in range(4)], ""),
    ],
)
@pytest.mark.parametrize("order", ["oldest first", "newest first", "each twice"])
def test_days_up_to_12_are_told_from_months(pattern: str, times: list[datetime], step: str, order: str) -> None:
    """By the regular steps of days or calendar months, however the rows of several series alternate."""
    times = times[::-1] if order == "newest first" else [t for t in times for _ in range(1 + (order == "each twice"))]
    cells = [time.strftime(pattern) for time in times]
    found = find_format(cells)
    assert found is not None
    assert found.pattern == pattern
    seconds = np.unique([found.seconds(cell) for cell in cells])
    assert str(timeline_of([seconds], of_calendar=True)).startswith(step)


@pytest.mark.parametrize("pattern", ["%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S", "%d.%m.%Y %H:%M"])
def test_times_are_written_as_they_were_read(pattern: str) -> None:
    cells = [time.strftime(pattern) for time in HOURS]
    found = find_format(cells)
    assert found is not None
    assert [found.cell(found.seconds(cell)) for cell in cells] == cells


@pytest.mark.parametrize("unit", [1, 1000, 10**6, 10**9])
def test_epochs(unit: int) -> None:
    cells = [str(int((time - EPOCH).total_seconds()) * unit) for time in HOURS]
    found = find_format(cells)
    assert found is not None
    assert found.seconds(cells[1]) - found.seconds(cells[0]) == 3600
    assert found.cell(found.seconds(cells[5])) == int(cells[5])


@pytest.mark.parametrize(
    "cells",
    [
        ["1", "2", "3"],
        ["12.5", "13.5", "14.5"],
        ["cat", "dog", "cow"],
        ["1704067200", "1999999999", "1500000000", "1888888888"],  # in the range of epochs, and at no step
        [True, False, True],
        [],
    ],
)
def test_values_that_are_not_times(cells: list[Any]) -> None:
    assert find_format(cells) is None


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (HOURS, "hourly"),
        ([START + timedelta(minutes=15 * i) for i in range(9)], "15 minutes"),
        ([START + timedelta(days=i) for i in range(9)], "daily"),
        ([datetime(2024, 1 + i, 1) for i in range(9)], "monthly"),
        ([datetime(2024, 1 + 3 * i, 1) for i in range(4)], "quarterly"),
        ([datetime(2000 + i, 1, 1) for i in range(9)], "yearly"),
        ([*HOURS[:5], *HOURS[9:], HOURS[-1]], "hourly; 1 gap, the longest 5 hours; 1 duplicate time"),
        ([START + timedelta(seconds=i / 100) for i in range(9)], "10 milliseconds"),
    ],
)
def test_the_step_and_what_breaks_it(times: list[datetime], said: str) -> None:
    seconds = np.array([(time - EPOCH).total_seconds() for time in times])
    assert str(timeline_of([seconds], of_calendar=True)) == said


def test_a_month_later_is_a_month_later() -> None:
    last_of_january = (datetime(2024, 1, 31) - EPOCH).total_seconds()
    later = TimeStep(1, "months").later(last_of_january, 1)
    assert EPOCH + timedelta(seconds=later) == datetime(2024, 2, 29)


@pytest.mark.parametrize("order", ["newest first", "shuffled"])
def test_rows_are_sorted_by_time_and_it_is_said(order: str, tmp_path: Path) -> None:
    rows = [[str(time), i] for i, time in enumerate(HOURS)]
    mixed = rows[::-1] if order == "newest first" else [rows[i] for i in np.random.default_rng(0).permutation(60)]
    path = write(tmp_path / "a.csv", ["date", "y"], mixed)
    said = "are newest first" if order == "newest first" else "are not in the order of their times"
    with pytest.warns(Note, match=rf"rows {said}\. They are sorted by 'date', oldest first\."):
        sheet = auto(path)
    assert sheet.columns == ("y",)
    assert sheet.series[0].values[:, 0].tolist() == list(range(60))
    assert sheet.series[0].place(0) == f"{path}:{2 + mixed.index(rows[0])}"
    assert read_series(path, time_column="none").series[0].values[:, 0].tolist() == [row[1] for row in mixed]


@pytest.mark.parametrize(
    ("names", "number"),
    [(["sensor", "ts", "y"], "epoch"), (["k", "x", "y"], "epoch"), (["store", "ds", "y"], "text")],
)
@pytest.mark.parametrize("by_time", [False, True])
def test_a_numeric_id_and_an_epoch_are_no_inputs(names: list[str], number: str, by_time: bool, tmp_path: Path) -> None:
    rows = []
    for series in range(6):
        for i, time in enumerate(HOURS):
            when = int((time - EPOCH).total_seconds()) if number == "epoch" else str(time)
            rows.append([101 + series, when, series + i / 7])
    if by_time:
        rows.sort(key=lambda row: row[1])
    sheet = auto(write(tmp_path / "six.csv", names, rows))
    assert sheet.columns == ("y",)
    assert (sheet.keys.series, sheet.keys.time) == ((names[0],), (names[1],))
    assert [one.key for one in sheet.series] == [str(101 + k) for k in range(6)]
    assert str(sheet.timeline) == "hourly"


def test_two_columns_may_tell_series_apart(tmp_path: Path) -> None:
    rows = [[s, item, str(time), s * i + 0.5] for i, time in enumerate(HOURS) for s in (1, 2) for item in "ab"]
    sheet = auto(write(tmp_path / "a.csv", ["store", "item", "date", "sales"], rows))
    assert sheet.keys.series == ("store", "item")
    assert [one.key for one in sheet.series] == ["1/a", "1/b", "2/a", "2/b"]
    assert sheet.columns == ("sales",)


def test_series_in_turn_with_the_day_first(tmp_path: Path) -> None:
    hours = [datetime(2024, 1, 1) + timedelta(hours=i) for i in range(200)]
    rows = [[time.strftime("%d/%m/%Y %H:%M"), store, i / 7] for i, time in enumerate(hours) for store in "ab"]
    sheet = auto(write(tmp_path / "a.csv", ["date", "store", "load"], rows))
    assert str(sheet.timeline) == "hourly"
    assert len(sheet.series) == 2


def test_a_date_and_a_time_of_day_are_one_time(tmp_path: Path) -> None:
    rows = [[time.strftime("%d/%m/%Y"), time.strftime("%H:%M:%S"), i / 3] for i, time in enumerate(HOURS)]
    sheet = auto(write(tmp_path / "a.csv", ["Date", "Time", "power"], rows))
    assert sheet.keys.time == ("Date", "Time")
    assert (sheet.columns, str(sheet.timeline)) == (("power",), "hourly")
    rows = [[str(time.date()), time.hour, i / 3] for i, time in enumerate(HOURS)]
    assert auto(write(tmp_path / "b.csv", ["date", "hour", "power"], rows)).keys.time == ("date", "hour")


@pytest.mark.parametrize(
    ("names", "columns", "inputs"),
    [
        (["time", "y"], lambda i: [i / 2, np.sin(i)], ("y",)),  # seconds since the beginning
        (["index", "y"], lambda i: [i, np.sin(i)], ("y",)),  # a number for each row
        (["time", "y"], lambda i: [i % 24, np.sin(i)], ("time", "y")),  # the hour of the day
        (["time_to_failure", "y"], lambda i: [300 - i, np.sin(i)], ("time_to_failure", "y")),
        (["temperature", "y"], lambda i: [i % 7, np.sin(i)], ("temperature", "y")),
        (["n", "y"], lambda i: [i, np.sin(i)], ("n", "y")),  # nothing says that it is no quantity
    ],
)
def test_numbers_that_are_times_and_those_that_are_not(
    names: list[str], columns: Any, inputs: tuple[str, ...], tmp_path: Path
) -> None:
    sheet = auto(write(tmp_path / "a.csv", names, [columns(i) for i in range(200)]))
    assert sheet.columns == inputs


def test_an_id_in_every_row_is_left_out_with_a_note(tmp_path: Path) -> None:
    rows = [[str(time), 7919 * (i + 3) % 1009, i / 3] for i, time in enumerate(HOURS)]
    said = r"left out, since they look like ids or times: 'order_id'\. To use them: data\.input_columns"
    with pytest.warns(Note, match=said):
        assert auto(write(tmp_path / "a.csv", ["date", "order_id", "y"], rows)).columns == ("y",)


def test_mixed_series_without_an_id_are_refused(tmp_path: Path) -> None:
    rows = [[str(time), i * s + 0.5] for i, time in enumerate(HOURS) for s in (1, 2)]
    path = write(tmp_path / "a.csv", ["date", "y"], rows)
    with pytest.raises(
        UserError, match=r"60 of 120 rows have a time, 'date', that another row has too\. Name the column"
    ):
        auto(path)
    assert len(read_series(path).series) == 1


def test_mistakes_in_times(tmp_path: Path) -> None:
    rows = [[str(time), i] for i, time in enumerate(HOURS)]
    path = write(tmp_path / "a.csv", ["date", "y"], [*rows[:30], ["soon", 1], *rows[30:]])
    with pytest.raises(UserError, match=r"a\.csv:32, column 'date': 'soon' is not a time like those before it\."):
        read_series(path, time_column="date")
    with pytest.raises(UserError, match=r"has no column 'when'\. Its columns: date, y\."):
        read_series(path, time_column="when")
    words = write(tmp_path / "b.csv", ["date", "y"], [["monday", 1], ["tuesday", 2]])
    with pytest.raises(UserError, match=r"b\.csv:2, column 'date': 'monday' is not a time\. Expected dates such as"):
        read_series(words, ["y"], time_column="date")


def test_dates_of_parquet(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"when": HOURS[::-1], "y": list(range(60))})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.warns(Note, match="newest first"):
        sheet = auto(tmp_path / "a.parquet")
    assert sheet.series[0].values[:, 0].tolist() == list(range(60))[::-1]


def test_a_clock_that_goes_back() -> None:
    clock = Clock()
    assert not any(clock.goes_back(cell) for cell in ("03/02/2024", "04/02/2024", "05/02/2024"))
    assert clock.goes_back("01/02/2024")
    assert not Clock().goes_back("no time")


@pytest.mark.parametrize(
    ("step", "period", "noise", "found"),
    [
        (TimeStep(3600), 24, 0.3, 24),
        (None, 24, 0.3, 24),
        (None, 31.4, 0.01, 31),
        (TimeStep(86400), 7, 0.3, 7),
        (TimeStep(1, "months"), 12, 0.3, 12),
        (None, 24, 100.0, None),  # nothing but noise
        (TimeStep(3600), 24, 100.0, None),
    ],
)
def test_the_period_of_a_series(step: TimeStep | None, period: float, noise: float, found: int | None) -> None:
    t = np.arange(1500)
    random = np.random.default_rng(0)
    values = 10 + np.sin(2 * np.pi * t / period) + 0.001 * t + noise * random.normal(size=len(t))
    assert find_period([values[:, None]], step) == found


def test_a_walk_has_no_period() -> None:
    walk = np.random.default_rng(0).normal(size=(2000, 1)).cumsum(0)
    assert find_period([walk], TimeStep(3600)) is None
    assert find_period([np.zeros((2, 1))], TimeStep(3600)) is None


def test_the_value_of_one_period_before() -> None:
    values = np.arange(20.0)
    for horizon, period in ((1, 4), (4, 4), (5, 4), (0, 3)):
        forecast = repeated(values, horizon, period)
        for t in range(20):
            past = t + horizon - period
            while past > t or (horizon == 0 and past >= t):
                past -= period
            assert forecast[t] == past if past >= 0 else np.isnan(forecast[t])


def test_a_series_column_that_was_said_may_be_anything_but_lists(tmp_path: Path) -> None:
    rows = [[i, f"s{i}", i / 3] for i in range(6)]  # every row a series of its own
    sheet = read_series(
        write(tmp_path / "a.csv", ["time", "who", "y"], rows), time_column="auto", sequence_column="who"
    )
    assert len(sheet.series) == 6
    (tmp_path / "a.jsonl").write_text('{"who": [1], "y": 2}\n{"who": [2], "y": 3}\n')
    with pytest.raises(UserError, match=r"a\.jsonl:1, column 'who': \[1\] does not name a series\. Expected a text"):
        read_series(tmp_path / "a.jsonl", sequence_column="who")
