"""Files of series as a model reads them: with its columns, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from unrolled.config import title_of
from unrolled.data.readers.series.key_columns import Keys
from unrolled.data.readers.series.read_series import Series, Sheet, read_series
from unrolled.data.signals.scaling import Roles
from unrolled.errors import UserError, note


def read_like(path: str | Path, roles: Roles, keys: Keys, *, missing: bool) -> Sheet:
    """A file with the columns of another one, whose times, if it has them, order its rows."""
    sheet = read_series(
        path,
        roles.names,
        sequence_column=",".join(keys.series) or None,
        time_column=",".join(keys.time) or None,
        missing=missing,
        optional=keys.time,
        keep=roles.categories,
    )
    path = title_of(path)
    if keys.time and not sheet.keys.time and not sheet.own_targets and sheet.series[0].lines is not None:
        note(f"{path} has no column {','.join(keys.time)!r}: its rows are read in the order of the file.")
    say_timeline(path, sheet)
    return sheet


def say_timeline(path: str, sheet: Sheet) -> None:
    """A note where the rows of a file do not follow each other at one step."""
    timeline = sheet.timeline
    if timeline is not None and (timeline.gaps or timeline.duplicates or timeline.irregular >= 0.5):
        note(f"{path}, by {','.join(sheet.keys.time)!r}: {timeline}. Rows are read as if each were one step later.")


def arrange(sheet: Sheet, roles: Roles) -> list[Series]:
    """The series with their columns in the order of the roles."""
    positions = [sheet.columns.index(name) for name in roles.names]
    return [replace(series, values=series.values[:, positions]) for series in sheet.series]


def usable(series: Sequence[Series], roles: Roles, start_row: bool = False) -> list[Series]:
    """The series that are long enough for the nearest horizon; an error where none is for the farthest."""
    least, most = (max(1, horizon + 1 - start_row) for horizon in (min(roles.horizons), max(roles.horizons)))
    longest = max(series, key=lambda one: len(one.values))
    if len(longest.values) < most:
        raise UserError(
            f"{longest.name} has {len(longest.values)} rows, too few to predict {max(roles.horizons)} steps ahead.",
            f"Give series of at least {most} rows.",
        )
    short = [one for one in series if len(one.values) < least]
    if short:
        note(f"{len(short)} of {len(series)} series are shorter than the horizon and left out: {short[0].name}.")
    return [one for one in series if len(one.values) >= least]
