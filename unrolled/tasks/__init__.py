"""The tasks, one file each."""

from unrolled.tasks.base import Data, Request, Task
from unrolled.tasks.forecast import Forecast
from unrolled.tasks.generate import Generate

TASKS: dict[str, type[Task]] = {"generate": Generate, "forecast": Forecast}

__all__ = ["TASKS", "Data", "Forecast", "Generate", "Request", "Task"]
