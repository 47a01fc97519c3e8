"""The tasks, one file each."""

from unrolled.tasks.base import Data, Request, Task
from unrolled.tasks.generate import Generate

TASKS: dict[str, type[Task]] = {"generate": Generate}

__all__ = ["TASKS", "Data", "Generate", "Request", "Task"]
