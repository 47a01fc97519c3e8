"""Options of `recognize`."""

from __future__ import annotations

from dataclasses import replace

from unrolled.tasks.options import Option, TaskOptions
from unrolled.tasks.shared import options as shared

BEAM = replace(shared.BEAM, default_text="1, or 100 with a lexicon")
N_BEST = shared.N_BEST
SCORERS = shared.SCORERS
LEXICON, LM, LM_WEIGHT = shared.LEXICON, shared.LM, shared.LM_WEIGHT
WORD_BONUS, UNKNOWN_PENALTY, SHARE_ENDS = shared.WORD_BONUS, shared.UNKNOWN_PENALTY, shared.SHARE_ENDS
MERGE = Option(
    "merge",
    "Score of paths that read the same: sum, or max for the best of them",
    default_text="sum, or max with a lexicon",
    choices=("sum", "max"),
)
WINDOW = Option(
    "window",
    "Cut longer inputs at silence or white space; in seconds, or line heights of an image",
    float,
    default_text="30 seconds, 60 line heights",
)
RATE = Option("rate", "Samples per second of raw 16-bit sound, from standard input (-) or a .raw file", float)
HOTWORDS = Option(
    "hotwords", "Prefer the phrases of this file, one per line, each alone or with a tab and its weight", metavar="FILE"
)
HOTWORD_WEIGHT = Option(
    "hotword_weight", "Score added for each label of a hotword, in nats", float, default_text="1", minimum=0
)
TUNE = Option("tune", "Find the --lm-weight and --word-bonus with the fewest errors on FILE", bool)

WORDS = (LEXICON, LM, LM_WEIGHT, WORD_BONUS, UNKNOWN_PENALTY, SHARE_ENDS, HOTWORDS, HOTWORD_WEIGHT, MERGE, WINDOW)
TRAIN = (
    Option(
        "data.too_short",
        "Write a list of the training examples that are too short for their transcripts",
        metavar="FILE.tsv",
    ),
)
STREAM = (BEAM, N_BEST, *WORDS, RATE, SCORERS)
PREDICT = (*STREAM, *shared.RESCORING)
RUN = (*PREDICT, replace(shared.PICTURE, help="Draw the labels of one input over time"))
EVAL = (BEAM, *WORDS, *shared.RESCORING, shared.REFERENCE_KIND, TUNE, *shared.python_only((N_BEST, SCORERS)))
FILE_KEYS = ("input_column", "text_column")  # of the data section: how a file is read
OPTIONS = TaskOptions(TRAIN, RUN, EVAL, PREDICT, stream=STREAM)
