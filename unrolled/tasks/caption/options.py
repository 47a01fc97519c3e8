"""Options of `caption`."""

from __future__ import annotations

from dataclasses import replace

from unrolled.tasks.options import Option, TaskOptions
from unrolled.tasks.shared.options import PICTURE, WRITING, scored

TRAIN = (Option("data.images", "The pictures: a folder, .zip or .npz", metavar="PATH"),)
PREDICT = WRITING
RUN = (*PREDICT, replace(PICTURE, help="Draw the attention of one input"))
EVAL = (Option("images", "The pictures; default: those of training", metavar="PATH"), *scored(PREDICT))
FILE_KEYS = ("image_column", "caption_column")  # of the data section: how a file is read
OPTIONS = TaskOptions(TRAIN, RUN, EVAL, PREDICT)
