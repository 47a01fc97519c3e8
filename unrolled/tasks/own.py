"""A task of the user's, from a Python file that the user names."""

from __future__ import annotations

from unrolled.errors import UserError
from unrolled.own_code import own_class
from unrolled.tasks.contract import Task


def load_task(text: str) -> Task:
    """The task of "my_task.py:MyTask": the file is run, and the class is made without arguments."""
    found = own_class(text, Task, "task", "unrolled.tasks")
    if not isinstance(getattr(found, "name", None), str) or not hasattr(found, "config_class"):
        name = text.rpartition(":")
        raise UserError(f"The task {name[2]} of {name[0]} has no name or no config_class.", "Give it both.")
    task: Task = found()
    return task
