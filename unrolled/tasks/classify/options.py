"""Options of `classify`: none beyond those of every task."""

from __future__ import annotations

from unrolled.tasks.options import TaskOptions

FILE_KEYS = ("text_column", "label_column", "label_separator")  # of the data section: how a file is read
OPTIONS = TaskOptions()
