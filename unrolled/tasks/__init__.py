"""The tasks, one file each."""

from unrolled.tasks.base import Data, Request, Task
from unrolled.tasks.classify import Classify
from unrolled.tasks.generate import Generate
from unrolled.tasks.tag import Tag

TASKS: dict[str, type[Task]] = {"generate": Generate, "classify": Classify, "tag": Tag}

__all__ = ["TASKS", "Classify", "Data", "Generate", "Request", "Tag", "Task"]
