"""A task of the user's, from a Python file that the user names. Nothing stored in a model file is ever imported."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from unrolled.errors import UserError, unknown_name
from unrolled.tasks.contract import Task


def load_task(text: str) -> Task:
    """The task of "my_task.py:MyTask": the file is run, and the class is made without arguments."""
    file, colon, name = text.rpartition(":")
    if not colon or not file.endswith(".py") or not name.isidentifier():
        raise UserError(f"{text!r} does not name a task of your own.", "Expected FILE.py:CLASS: my_task.py:MyTask")
    path = Path(file)
    if not path.is_file():
        raise UserError(f"{path} does not exist.", "Give the Python file of your task.")
    module_name = f"unrolled_own_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    tasks = [key for key, value in vars(module).items() if _is_task(value) and value.__module__ == module_name]
    if not hasattr(module, name):
        raise unknown_name(f"task of {path}", name, tasks)
    found = getattr(module, name)
    if not _is_task(found):
        raise UserError(f"{name} of {path} is not a task.", "Make it a class that inherits from unrolled.tasks.Task.")
    missing = sorted(found.__abstractmethods__)
    if missing:
        raise UserError(f"The task {name} of {path} lacks {', '.join(missing)}.", "Write these methods.")
    if not isinstance(getattr(found, "name", None), str) or not hasattr(found, "config_class"):
        raise UserError(f"The task {name} of {path} has no name or no config_class.", "Give it both.")
    task: Task = found()
    return task


def _is_task(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Task)
