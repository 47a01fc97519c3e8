"""The plan of a sweep: the config that its trials share, and the search spaces of the keys in which they differ."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

from unrolled.config import (
    apply,
    deciding,
    keys,
    parsed_value,
    refused,
    unknown_key,
    why_not,
    with_absolute_paths,
    write_toml,
)
from unrolled.config.describe import show, toml_value
from unrolled.errors import UserError
from unrolled.jobs import Target
from unrolled.sweeps.settings import SweepSettings
from unrolled.sweeps.spaces import FORMS, Alternatives, NumberRange, Space, is_space, parse_space
from unrolled.tasks import Task

TABLE = "sweep"
INIT = "init"
Suggest = Callable[[str, Space], Any]
Given = tuple[str, Any, str]  # a key, its space or the text of one, and the beginning of messages about it


@dataclass(frozen=True)
class SweepPlan:
    """A sweep's base and its spaces, in the order of their choice: keys that decide about others come first."""

    task: Task
    base: Any
    spaces: Mapping[str, Space]
    init: str | None = None

    def draw(self, suggest: Suggest) -> dict[str, Any]:
        """The values of one trial; a key that does nothing beside those chosen before it gets none."""
        cls = self.task.config_class
        values, chosen = dict(self._base_values), dict[str, Any]()
        for path, space in self.spaces.items():
            if why_not(cls, values, path) is None:
                values[path] = chosen[path] = suggest(path, space)
        return chosen

    def config(self, chosen: Mapping[str, Any]) -> Any:
        """The config of a trial; keys of the base that do nothing in it have their defaults."""
        cls = self.task.config_class
        values = {**self._base_values, **chosen}
        idle = {path: keys(cls)[path].default for path in self._may_idle if why_not(cls, values, path) is not None}
        return apply(self.base, {**chosen, **idle})

    @cached_property
    def _base_values(self) -> dict[str, Any]:
        """The values of the base, where those that are searched have their defaults."""
        known = keys(self.task.config_class)
        values = {path: attrgetter(path)(self.base) for path in known}
        return values | {path: known[path].default for path in self.spaces if known[path].default is not ...}

    @cached_property
    def _may_idle(self) -> list[str]:
        """Keys set in the base that do something in some trials and nothing in others."""
        cls = self.task.config_class
        changed = [
            path
            for path, key in keys(cls).items()
            if path not in self.spaces and key.default is not ... and self._base_values[path] != key.default
        ]
        return [path for path in changed if deciding(cls, path) & self.spaces.keys()]

    def combinations(self, most: int) -> list[dict[str, Any]] | None:
        """Every combination of values, if there are at most `most`."""
        found: list[dict[str, Any]] = []
        sizes = dict[int, int]()
        turns: list[int] = []
        if any(space.size > most for space in self.spaces.values()):
            return None
        while True:
            place = iter(range(len(self.spaces)))

            def suggest(path: str, space: Space, place: Any = place) -> Any:
                depth = next(place)
                turns.extend([0] * (depth + 1 - len(turns)))
                sizes[depth] = int(space.size)
                return space.all[turns[depth]]

            found.append(self.draw(suggest))
            while turns and turns[-1] + 1 == sizes[len(turns) - 1]:
                turns.pop()
            if not turns:
                return found
            if len(found) == most:
                return None
            turns[-1] += 1

    @property
    def reads_the_same(self) -> bool:
        """True if all trials train on the same data, read in the same way."""
        return not any(path.startswith("data.") for path in self.spaces)

    def as_toml(self, settings: SweepSettings, header: str) -> str:
        """The file of a sweep: its base as a config, and a table `sweep`."""
        kept = {name: value for name, value in settings if name not in settings.of_a_process}
        rows = {**kept, **({INIT: self.init} if self.init else {})}
        lines = [f"{name} = {toml_value(value)}" for name, value in rows.items()]
        lines += [f"{json.dumps(path)} = {toml_value(str(space))}" for path, space in self.spaces.items()]
        table = "\n".join([f"[{TABLE}]", *lines])
        return f"{write_toml(self.base, comments=False, header=header)}\n{table}\n"


def make_plan(
    target: Target, overrides: Sequence[str], extra: Mapping[str, Any], init: str | None = None
) -> tuple[SweepPlan, dict[str, Any]]:
    """The plan of a target and its changes, and the settings in the file's table; every mistake in one report."""
    cls = target.task.config_class
    stored, settings = _table(target)
    spaces: dict[str, Given] = {name: (name, value, where) for name, value, where in stored}
    plain, values, problems = list[str](), dict[str, Any](), list[UserError]()
    for path, value in extra.items():
        if is_space(value):
            spaces[path] = (path, value, "")
        else:
            values[path] = value
            spaces.pop(path, None)
    for text in overrides:
        path, equals, value = (part.strip() for part in text.partition("="))
        if equals and is_space(value):
            spaces[path] = (path, value, "--set: ")
        else:
            plain.append(text)
            spaces.pop(path, None)
    found: dict[str, Space] = {}
    for given in spaces.values():
        try:
            found[given[0]] = _checked(cls, *given)
        except UserError as error:
            problems.append(error)
    base = with_absolute_paths(target.configure(plain, values, also=problems))
    if not found:
        raise UserError(
            "Nothing varies: no key has a search space.", f"Such as --set 'train.lr=log(1e-4, 1e-2)'. {FORMS}"
        )
    init = init or settings.pop(INIT, None)
    plan = SweepPlan(target.task, base, dict(_in_order(cls, found)), init)
    _check_use(plan)
    return plan, settings


def _table(target: Target) -> tuple[list[Given], dict[str, Any]]:
    """The spaces and the settings in the table `sweep` of a config file."""
    table: Any = {} if target.file is None else target.file.data.get(TABLE, {})
    assert target.file is not None or not table
    if not isinstance(table, dict):
        raise UserError(f"{TABLE}={show(table)} is not a table.", f"Write [{TABLE}], and keys below it.")
    where = "" if target.file is None else f"{target.file.path}, [{TABLE}]: "
    names = {*SweepSettings.model_fields, INIT}
    settings = {name: value for name, value in table.items() if name in names}
    return [(path, value, where) for path, value in _flat(table) if path not in names], settings


def _flat(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for name, value in table.items():
        rows += _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, value)]
    return rows


def _checked(cls: Any, path: str, given: Any, where: str) -> Space:
    """The space of a key, every end of which the key takes."""
    unknown = unknown_key(cls, path, str(given))
    if unknown is not None:
        near = f" Settings of a sweep: {', '.join(SweepSettings.model_fields)}." if TABLE in where else ""
        raise UserError(where + unknown.problem, unknown.fix + near)
    shown = f"{where}{path}={given}"
    try:
        if isinstance(given, list):
            given = Alternatives(tuple(given))
        if not isinstance(given, (NumberRange, Alternatives)):
            given = parse_space(str(given), lambda text: parsed_value(cls, path, text))
        space: Space = given.of(keys(cls)[path])
    except UserError as error:
        raise UserError(f"{shown}: {error.problem}", error.fix) from None
    for value in space.ends:
        if (wrong := refused(cls, path, value)) is not None:
            raise UserError(f"{shown}: {wrong.problem}", wrong.fix)
    return space


def _in_order(cls: Any, spaces: Mapping[str, Space]) -> list[tuple[str, Space]]:
    """The spaces, those of keys that decide about others first."""
    waiting, rows = dict(spaces), list[tuple[str, Space]]()
    while waiting:
        path = next(
            (p for p in waiting if not deciding(cls, p) & (waiting.keys() - {p})),
            next(iter(waiting)),
        )
        rows.append((path, waiting.pop(path)))
    return rows


def _check_use(plan: SweepPlan) -> None:
    """An error for keys that do nothing in any trial."""
    cls, problems = plan.task.config_class, list[UserError]()
    for path in [*plan.spaces, *plan._may_idle]:
        above = deciding(cls, path) & plan.spaces.keys()
        ends = {p: Alternatives(tuple(plan.spaces[p].ends)) for p in plan.spaces if p in above}
        trials = SweepPlan(plan.task, plan.base, ends).combinations(10_000) if ends else [{}]
        values = dict(plan._base_values)
        reasons = [why_not(cls, {**values, **trial}, path) for trial in trials or []]
        if reasons and None not in reasons:
            shown = f"{path}={plan.spaces[path]}" if path in plan.spaces else f"{path}={show(values[path])}"
            problems.append(UserError(f"{shown} does nothing here: {reasons[0]}.", "Leave it out."))
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise UserError("\n  ".join([f"{len(problems)} keys do nothing here:", *map(str, problems)]))


def differences(old: Mapping[str, Any], new: str) -> list[str]:
    """The keys in which the file of a sweep differs from a new one, with both values."""
    before, after = dict(_flat(old)), dict(_flat(tomllib.loads(new)))
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return [
        f"{name.removeprefix(f'{TABLE}.')}: {show(before.get(name))}, now {show(after.get(name))}" for name in names
    ]
