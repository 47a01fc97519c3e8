"""Settings that tests share between kinds of models: those that do something for the one at hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unrolled.config import fitting as fitting_of
from unrolled.tasks import TASKS


def fitting(task: str, changes: Mapping[str, Any], **facts: Any) -> dict[str, Any]:
    """Those of some keys that do something; facts about the data have __ for dots: data__kind="line"."""
    named = {name.replace("__", "."): value for name, value in facts.items()}
    return fitting_of(TASKS[task]().config_class, changes, named)
