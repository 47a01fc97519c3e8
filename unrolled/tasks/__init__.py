"""The tasks, one file each."""

from unrolled.tasks.base import Data, Task
from unrolled.tasks.generate import Generate

TASKS: dict[str, type[Task]] = {"generate": Generate}

__all__ = ["TASKS", "Data", "Generate", "Task"]
