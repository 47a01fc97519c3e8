"""Options of `classify`."""

from __future__ import annotations

from dataclasses import replace

from unrolled.tasks.options import Option, TaskOptions

FILE_KEYS = ("text_column", "label_column", "label_separator")  # of the data section: how a file is read
MIN_PROBABILITY = Option("min_probability", "Answer ? where no label is as likely as this, from 0 to 1", float)
EXPLAIN = Option(
    "explain", "Show which words decided, and the n-grams that the wide path decided by", bool, default=False
)
SCORED = replace(MIN_PROBABILITY, help="Also the share of answers as likely as this, and their accuracy")
OPTIONS = TaskOptions(run=(MIN_PROBABILITY, EXPLAIN), eval=(SCORED,))
