"""Options of `tag`."""

from __future__ import annotations

from unrolled.tasks.options import Option, TaskOptions

PREDICT = (Option("probabilities", "Add the probability of each tag", bool, only="python"),)
SEGMENTS = Option(
    "segments", "Frames, --format csv: a row for each segment, not for each frame", bool, only="command line"
)
OPTIONS = TaskOptions(run=(SEGMENTS,), predict=PREDICT)
