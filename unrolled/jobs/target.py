"""The task and the config that a target means: a task, its name, or a TOML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unrolled.config import Section, TomlFile, read_config, read_toml
from unrolled.errors import UserError, unknown_name
from unrolled.tasks import TASKS, Task


@dataclass(frozen=True)
class Target:
    """A task, and the file of its config where there is one."""

    task: Task
    file: TomlFile | None = None

    def configure(
        self,
        overrides: Sequence[str] = (),
        extra: Mapping[str, Any] | None = None,
        also: Sequence[UserError] = (),
    ) -> Section:
        """The config with changes, checked; `also` are mistakes to report with its own."""
        return read_config(self.task.config_class, self.file, overrides, extra, also)


def configure(
    target: str | Path | Task,
    overrides: list[str] | None = None,
    extra: Mapping[str, Any] | None = None,
    *,
    task: Task | None = None,
) -> Section:
    """The config for a task, its name or a TOML file, with changes. `task` is known beside the built-in ones."""
    return find_target(target, task).configure(overrides or [], extra)


def find_target(target: str | Path | Task | None, task: Task | None = None) -> Target:
    """The task and config file that a name, a TOML file or a task means; `task` is one of the user's own."""
    if isinstance(target, Task):
        return Target(target)
    if target is None or (task is not None and str(target).endswith(f".py:{type(task).__name__}")):
        assert task is not None
        return Target(task)
    if (path := Path(target)).suffix == ".toml":
        file = read_toml(path)
        name = file.data.get("task")
        if name is None:
            raise UserError(f"{path} names no task.", f'Add a first line such as task = "{next(iter(TASKS))}".')
        try:
            return Target(_task_named(name, task), file)
        except UserError as error:
            raise UserError(error.problem, f"{error.fix} A task of your own: --task FILE.py:CLASS.") from None
    if path.is_file() and str(target) not in TASKS:
        raise UserError(f"{path} is not a task.", f"To train on it: unrolled train generate --train {path}")
    return Target(_task_named(str(target), task))


def _task_named(name: object, task: Task | None) -> Task:
    if task is not None and task.name == name:
        return task
    if not isinstance(name, str) or name not in TASKS:
        raise unknown_name("task", name, [*TASKS, *([task.name] if task is not None else [])])
    return TASKS[name]()
