"""The task and the config that a target means: a task, its name, or a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unrolled.config import Section, read_config
from unrolled.errors import UserError, unknown_name
from unrolled.tasks import TASKS, Task


def configure(
    target: str | Path | Task,
    overrides: list[str] | None = None,
    extra: Mapping[str, Any] | None = None,
    *,
    task: Task | None = None,
) -> Section:
    """The config for a task, its name or a TOML file, with changes. `task` is known beside the built-in ones."""
    if isinstance(target, Task):
        return read_config(target.config_class, None, overrides or [], extra or {})
    name, path = task_of(target, task)
    config_class = task.config_class if task is not None and task.name == name else TASKS[name].config_class
    return read_config(config_class, path, overrides or [], extra or {})


def task_of(target: str | Path, task: Task | None = None) -> tuple[str, Path | None]:
    """The name of the task that a name or a TOML file means, and that file."""
    known = [*TASKS, *([task.name] if task is not None and task.name not in TASKS else [])]
    if str(target) in known:
        return str(target), None
    path = Path(target)
    if path.suffix != ".toml":
        if path.is_file():
            raise UserError(f"{path} is not a task.", f"To train on it: unrolled train generate --train {path}")
        raise unknown_name("task", str(target), known)
    try:
        name = tomllib.loads(path.read_text(encoding="utf-8-sig")).get("task")
    except (OSError, ValueError, RecursionError):
        name = "generate"  # read_config reports the error of the file
    if name is None:
        raise UserError(f"{path} names no task.", f'Add a first line such as task = "{known[0]}".')
    if not isinstance(name, str) or name not in known:
        raise unknown_name("task", name, known)
    return name, path
