"""The tasks, one file each."""

from unrolled.tasks.base import Data, Example, Request, Task
from unrolled.tasks.caption import Caption
from unrolled.tasks.classify import Classify
from unrolled.tasks.forecast import Forecast
from unrolled.tasks.generate import Generate
from unrolled.tasks.recognize import Recognize
from unrolled.tasks.tag import Tag
from unrolled.tasks.translate import Translate

TASKS: dict[str, type[Task]] = {
    "generate": Generate,
    "classify": Classify,
    "tag": Tag,
    "forecast": Forecast,
    "translate": Translate,
    "recognize": Recognize,
    "caption": Caption,
}

__all__ = [
    "TASKS",
    "Caption",
    "Classify",
    "Data",
    "Example",
    "Forecast",
    "Generate",
    "Recognize",
    "Request",
    "Tag",
    "Task",
    "Translate",
]
