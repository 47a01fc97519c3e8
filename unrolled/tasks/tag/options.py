"""Options of `tag`."""

from __future__ import annotations

from unrolled.tasks.options import Option, TaskOptions

PREDICT = (Option("probabilities", "Add the probability of each tag", bool, only="python"),)
OPTIONS = TaskOptions(predict=PREDICT)
