"""From a config of `forecast` to series with their roles, cut into a training and a validation part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, field_validator

from unrolled.config import Section, only, title_of
from unrolled.data.readers.series.key_columns import NO_KEYS, NONE, Keys
from unrolled.data.readers.series.read_series import EMBEDDED_SERIES, Series, Sheet, embedded_series, read_series
from unrolled.data.readers.series.times import Timeline
from unrolled.data.signals.scaling import Roles, Scaling, SeriesPart, constant_columns
from unrolled.errors import UserError, note
from unrolled.tasks.contract import Data
from unrolled.tasks.forecast.series import arrange, read_like, say_timeline, usable
from unrolled.training import hash_of

CONTEXT = 512  # rows that are read, unscored, before the validation part of a series


class ForecastData(Section):
    """The data, the targets, and the horizons."""

    train: str | None = Field(
        None, description="Numbers: .csv, .tsv, .jsonl, .parquet or .npz; none: a recording that ships with matplotlib."
    )
    valid: str | None = Field(None, description="A file to validate on; none: the end of every training series.")
    valid_fraction: float = Field(
        0.2,
        gt=0,
        lt=1,
        json_schema_extra=only(valid=None),
        description="How much of each series' end, if there is no valid file.",
    )
    input_columns: str | list[str] | None = Field(
        None,
        description="Columns to read, by name, or by number where there are no names; none: all of numbers, "
        "but for horizon 0 not the targets.",
    )
    target_columns: str | list[str] | None = Field(None, description="Columns to predict; none: the inputs.")
    category_columns: str | list[str] = Field(
        [],
        description="Columns of categories to read too, such as a weekday: every value has a learned vector.",
    )
    time_column: str = Field(
        "auto",
        description="The column that says when a row was taken, dates or epochs, by which rows are sorted; auto: found "
        'by name and content; "none": rows are in the order of the file.',
    )
    sequence_column: str = Field(
        "auto",
        description="The column that tells several series in one file apart, or several with commas; auto: found by "
        'name and content; "none": a table is one series.',
    )
    horizon: int | list[int] | None = Field(
        None,
        description="Steps ahead, one or several: [1, 6, 24]; 0: a target of the same step, such as a control signal; "
        "none: 1, or 0 where no target is an input.",
    )
    missing: Literal["error", "mask"] = Field(
        "error", description="Empty cells and NaN: refuse them, or read the last value and a mark, and score nothing."
    )
    scaling: Scaling = Field(
        "standard", description="By mean and deviation, by median and quartiles (robust), or not at all."
    )
    start_row: bool = Field(
        False, description="Read a row of zeros before every series, so that its first row is predicted too."
    )
    period: int | Literal["auto", "none"] = Field(
        "auto",
        description="After how many rows the targets repeat themselves, for the forecast that scores are compared "
        'with; auto: by the step of the times and the training data; "none": not compared.',
    )

    @field_validator("sequence_column", "time_column", mode="before")
    @classmethod
    def _no_column(cls, value: Any) -> Any:
        return NONE if value is None else value  # as model files of earlier versions have it

    @field_validator("period")
    @classmethod
    def _long_enough(cls, value: int | str) -> int | str:
        if isinstance(value, int) and value < 1:
            raise ValueError('expected a number of rows from 1 on, "auto" or "none"')
        return value

    @field_validator("horizon")
    @classmethod
    def _ahead(cls, value: int | list[int] | None) -> int | list[int] | None:
        if value is None:
            return value
        steps = [value] if isinstance(value, int) else value
        if not steps or min(steps) < 0 or sorted(set(steps)) != steps or (0 in steps and len(steps) > 1):
            raise ValueError("expected 0, or steps ahead that rise, such as 1 or [1, 6, 24]")
        return value


@dataclass(frozen=True)
class Table:
    """Series with the same roles, the columns that order them, and the step between their rows."""

    roles: Roles
    parts: list[SeriesPart]
    keys: Keys = NO_KEYS
    timeline: Timeline | None = None

    @property
    def rows(self) -> int:
        return sum(len(part.series.values) - part.first for part in self.parts)


def read_data(settings: ForecastData) -> Data:
    """The series of the files, or the embedded ones; without a valid file, the end of each is held out."""
    wanted = _wanted(settings)
    sheet = embedded_series() if settings.train is None else _read(settings, settings.train, wanted)
    roles = choose_roles(settings, sheet)
    series = usable(arrange(sheet, roles), roles, settings.start_row)
    say_timeline(title_of(settings.train), sheet)
    if settings.valid is None:
        train, valid = _split(series, roles, settings.valid_fraction)
    else:
        other = read_like(settings.valid, roles, sheet.keys, missing=settings.missing == "mask")
        train, valid = [SeriesPart(s) for s in series], [SeriesPart(s) for s in usable(arrange(other, roles), roles)]
    _look_for_constants(roles, train)
    source = settings.train or f"{EMBEDDED_SERIES}: the next sample"
    parts = [part.series.values.tobytes() for part in [*train, *valid]]
    parts += [repr(part.series.cells[name]).encode() for part in [*train, *valid] for name in roles.categories]
    tables = [Table(roles, part, sheet.keys, sheet.timeline) for part in (train, valid)]
    return Data(tables[0], tables[1], source, hash_of("\0".join(roles.names).encode(), *parts))


def names_of(value: str | list[str] | None) -> list[str] | None:
    """Names of columns as the config has them: a list, or text with commas between."""
    if isinstance(value, str):
        return [name.strip() for name in value.split(",") if name.strip()]
    return value


def choose_roles(settings: ForecastData, sheet: Sheet) -> Roles:
    """The inputs and targets, if the config does not name them."""
    inputs, targets = names_of(settings.input_columns), names_of(settings.target_columns)
    categories, horizon = names_of(settings.category_columns) or [], settings.horizon
    if targets is None and sheet.own_targets:
        targets = list(sheet.own_targets)
    if inputs is None:
        leave = {*sheet.own_targets, *categories} | (set(targets or []) if horizon == 0 else set())
        inputs = [name for name in sheet.columns if name not in leave]
    if targets is None:
        targets = [name for name in sheet.columns if name not in inputs] if horizon == 0 else inputs
    if horizon is None:
        horizon = 1 if set(targets) & set(inputs) else 0
    horizons = (horizon,) if isinstance(horizon, int) else tuple(horizon)
    if not inputs or not targets:
        raise UserError(
            f"There are {len(inputs)} input and {len(targets)} target columns.",
            f"Set data.input_columns and data.target_columns. The file has: {', '.join(sheet.columns[:20])}.",
        )
    if horizons == (0,) and set(targets) & set(inputs):
        both = ", ".join(repr(name) for name in targets if name in inputs)
        raise UserError(
            f"With data.horizon=0 the column {both} would be read to predict itself.",
            "Take it out of data.input_columns, or use data.horizon=1.",
        )
    if twice := [name for name in categories if name in (*inputs, *targets)]:
        raise UserError(
            f"The column {twice[0]!r} is named as numbers and as categories.",
            "Take it out of data.category_columns, or of data.input_columns and data.target_columns.",
        )
    return Roles(tuple(inputs), tuple(targets), horizons, tuple(dict.fromkeys(categories)))


def _wanted(settings: ForecastData) -> list[str] | None:
    """The columns to read, or None where that depends on the file."""
    inputs, targets = names_of(settings.input_columns), names_of(settings.target_columns)
    if inputs is None or (targets is None and settings.horizon == 0):
        return None
    return [*inputs, *(targets or [])]


def _read(settings: ForecastData, path: str, wanted: Sequence[str] | None) -> Sheet:
    targets, categories = names_of(settings.target_columns) or [], names_of(settings.category_columns) or []
    if categories and Path(path).suffix == ".npz":
        raise UserError(
            f"{path} holds numbers alone: data.category_columns={categories} does not apply.", "Give a table."
        )
    sheet = read_series(
        path,
        wanted,
        sequence_column=settings.sequence_column,
        time_column=settings.time_column,
        missing=settings.missing == "mask",
        taken=[*targets, *categories],
        keep=categories,
    )
    for name in [*(names_of(settings.input_columns) or []), *targets]:
        if name not in sheet.columns:
            raise UserError(
                f"{title_of(path)} has no column of numbers {name!r}.", f"It has: {', '.join(sheet.columns[:20])}."
            )
    return sheet


def _split(series: Sequence[Series], roles: Roles, fraction: float) -> tuple[list[SeriesPart], list[SeriesPart]]:
    """The end of every series for validation, which reads on from the rows before it."""
    train, valid = [], []
    farthest = max(roles.horizons)
    for one in series:
        rows = len(one.values)
        held = max(1, round(rows * fraction))
        cut = rows - held
        if cut <= farthest:
            train.append(SeriesPart(one))
            continue
        begin = max(0, cut - CONTEXT)
        train.append(SeriesPart(one.rows(0, cut)))
        valid.append(SeriesPart(one.rows(begin, rows), cut - begin))
    if not valid:
        longest = max(series, key=lambda one: len(one.values))
        raise UserError(
            f"No series is long enough to hold out its end: the longest, {longest.name}, has "
            f"{len(longest.values)} rows, and the horizon is {farthest}.",
            "Give longer series, a data.valid file, or a shorter data.horizon.",
        )
    return train, valid


def _look_for_constants(roles: Roles, train: Sequence[SeriesPart]) -> None:
    constant = constant_columns(roles, train)
    if set(roles.targets) <= set(constant):
        raise UserError(
            f"Nothing to learn: {', '.join(map(repr, roles.targets[:10]))} never changes in the training part.",
            "Choose other data.target_columns.",
        )
    rows = np.concatenate([part.series.values for part in train])
    plain = [name for name in constant if rows[0, roles.names.index(name)] not in (0.0, 1.0)]
    if plain:
        note(f"Never changing in the training part: {', '.join(map(repr, plain[:10]))}.")
