"""The tasks, one file each."""

from unrolled.tasks.caption.task import Caption
from unrolled.tasks.classify.task import Classify
from unrolled.tasks.contract import Data, Task
from unrolled.tasks.forecast.task import Forecast
from unrolled.tasks.generate.task import Generate
from unrolled.tasks.recognize.task import Recognize
from unrolled.tasks.runner import Request, Runner
from unrolled.tasks.tag.task import Tag
from unrolled.tasks.tracer import Example, Tracer
from unrolled.tasks.translate.task import Translate

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
    "Runner",
    "Tag",
    "Task",
    "Tracer",
    "Translate",
]
