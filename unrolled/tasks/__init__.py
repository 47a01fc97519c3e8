"""The tasks, one file each."""

from unrolled.tasks.base import Data, Request, Task
from unrolled.tasks.generate import Generate
from unrolled.tasks.tag import Tag

TASKS: dict[str, type[Task]] = {"generate": Generate, "tag": Tag}

__all__ = ["TASKS", "Data", "Generate", "Request", "Tag", "Task"]
