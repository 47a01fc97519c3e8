"""The tasks, one file each."""

from unrolled.tasks.base import Data, Request, Task
from unrolled.tasks.classify import Classify
from unrolled.tasks.generate import Generate

TASKS: dict[str, type[Task]] = {"generate": Generate, "classify": Classify}

__all__ = ["TASKS", "Classify", "Data", "Generate", "Request", "Task"]
