"""Options of `tag`."""

from __future__ import annotations

from unrolled.tasks.options import Option, TaskOptions

PREDICT = (Option("probabilities", "Add the probability of each tag", bool, only="python"),)
SEGMENTS = Option(
    "segments", "Frames, --format csv: a row for each segment, not for each frame", bool, only="command line"
)
STREAM = Option(
    "stream",
    "Standard input: tag words, or a frame per line, as lines come; a blank line ends a sequence",
    bool,
    only="command line",
)
FILE_KEYS = ("word_column", "tag_column", "sequence_column")  # of the data section: how a file is read
OPTIONS = TaskOptions(run=(SEGMENTS, STREAM), predict=PREDICT, stream=PREDICT)
