"""The tasks, a folder each. A task is imported when it is first used: its options need no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unrolled.tasks.caption.task import Caption
    from unrolled.tasks.classify.task import Classify
    from unrolled.tasks.contract import Data, Task
    from unrolled.tasks.forecast.task import Forecast
    from unrolled.tasks.generate.task import Generate
    from unrolled.tasks.options import Option, TaskOptions
    from unrolled.tasks.recognize.task import Recognize
    from unrolled.tasks.runner import Request, Runner
    from unrolled.tasks.tag.task import Tag
    from unrolled.tasks.tracer import Example, Tracer
    from unrolled.tasks.translate.task import Translate

_CLASSES = {
    "generate": "Generate",
    "classify": "Classify",
    "tag": "Tag",
    "forecast": "Forecast",
    "translate": "Translate",
    "recognize": "Recognize",
    "caption": "Caption",
}
_HOMES = {
    **{name: f"unrolled.tasks.{task}.task" for task, name in _CLASSES.items()},
    **dict.fromkeys(("Data", "Task"), "unrolled.tasks.contract"),
    **dict.fromkeys(("Request", "Runner"), "unrolled.tasks.runner"),
    **dict.fromkeys(("Example", "Tracer"), "unrolled.tasks.tracer"),
    **dict.fromkeys(("Option", "TaskOptions"), "unrolled.tasks.options"),
}


class _Tasks(Mapping[str, "type[Task]"]):
    """The class of each built-in task by its name."""

    def __getitem__(self, name: str) -> type[Task]:
        task: type[Task] = __getattr__(_CLASSES[name])
        return task

    def __contains__(self, name: object) -> bool:
        return name in _CLASSES

    def __iter__(self) -> Iterator[str]:
        return iter(_CLASSES)

    def __len__(self) -> int:
        return len(_CLASSES)


TASKS: Mapping[str, type[Task]] = _Tasks()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


__all__ = [
    "TASKS",
    "Caption",
    "Classify",
    "Data",
    "Example",
    "Forecast",
    "Generate",
    "Option",
    "Recognize",
    "Request",
    "Runner",
    "Tag",
    "Task",
    "TaskOptions",
    "Tracer",
    "Translate",
]
