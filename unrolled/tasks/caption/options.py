"""Options of `caption`."""

from __future__ import annotations

from dataclasses import replace

from unrolled.tasks.options import Option, TaskOptions
from unrolled.tasks.shared.options import PICTURE, WRITING, python_only

TRAIN = (Option("data.images", "The pictures: a folder, .zip or .npz", metavar="PATH"),)
PREDICT = WRITING
RUN = (*PREDICT, replace(PICTURE, help="Draw the attention of one input"))
ON_COMMAND_LINE = ("beam", "length_penalty", "alpha")
EVAL = (
    Option("images", "The pictures; default: those of training", metavar="PATH"),
    *(option for option in WRITING if option.key in ON_COMMAND_LINE),
    *python_only(tuple(option for option in WRITING if option.key not in ON_COMMAND_LINE)),
)
OPTIONS = TaskOptions(TRAIN, RUN, EVAL, PREDICT)
