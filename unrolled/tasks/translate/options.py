"""Options of `translate`."""

from __future__ import annotations

from dataclasses import replace

from unrolled.tasks.options import Option, TaskOptions
from unrolled.tasks.shared.options import PICTURE, REFERENCE_KIND, UNKNOWN, WRITING, scored

TRAIN = (
    Option("data.train_source", "Source texts, one per line", metavar="FILE"),
    Option("data.train_target", "Translations of --train-source, one per line", metavar="FILE"),
    Option("data.valid_source", "Source texts for validation", metavar="FILE"),
    Option("data.valid_target", "Translations of --valid-source", metavar="FILE"),
)
PREDICT = tuple(
    replace(
        UNKNOWN,
        help="Unknown words: keep, forbid, or replace by the source word with the most attention",
        default_text="auto: replace words, forbid other tokens",
    )
    if option is UNKNOWN
    else option
    for option in WRITING
)
RUN = (*PREDICT, replace(PICTURE, help="Draw the attention of one input"))
EVAL = (
    Option(
        "target",
        "The target texts, where FILE holds only sources; repeatable, for several references",
        tuple,
        metavar="FILE",
    ),
    Option("picture", "Draw BLEU by source length, .png or .svg", metavar="FILE", only="command line"),
    Option(
        "others",
        "Another model in the picture; repeatable",
        tuple,
        names=("--with",),
        metavar="MODEL",
        only="command line",
    ),
    *scored(PREDICT),
    REFERENCE_KIND,
)
FILE_KEYS = ("source_column", "target_column")  # of the data section: how a file is read
OPTIONS = TaskOptions(TRAIN, RUN, EVAL, PREDICT)
