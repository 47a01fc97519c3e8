"""Options of `classify`: none beyond those of every task."""

from __future__ import annotations

from unrolled.tasks.options import TaskOptions

OPTIONS = TaskOptions()
