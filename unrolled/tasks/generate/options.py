"""Options of `generate`."""

from __future__ import annotations

from dataclasses import replace

from unrolled.tasks.options import Option, TaskOptions
from unrolled.tasks.shared import options as shared

MAX_TOKENS = replace(shared.MAX_TOKENS, default=400)
TEMPERATURE = replace(shared.TEMPERATURE, default=0.8)
TOP_K = replace(shared.TOP_K, default=0)
TOP_P = replace(shared.TOP_P, default=1.0)
MIN_P = replace(shared.MIN_P, default=0.0)
REPETITION_PENALTY = Option(
    "repetition_penalty", "Above 1, tokens that were written before become less likely", float, default=1.0
)
STOP = Option("stop", "Stop before this text; repeatable", tuple, default=(), metavar="TEXT")
SEED = shared.SEED
WORDS = shared.WORDS
BEAM = replace(shared.BEAM, help="Search for the likeliest end of the line with this beam instead of sampling")
N_BEST = replace(shared.N_BEST, help="Outputs per prompt, the best of a search")
SCORERS = shared.SCORERS
WEIGHTS = Option(
    "weights", "Format of recurrent weights on a CPU: fp32, or for speed fp16, int16 or int8", default="fp32"
)

SEARCHING = (N_BEST, shared.RESCORE, shared.MARGIN, shared.PER_NODE)  # with a beam
SAMPLING = (TEMPERATURE, TOP_K, TOP_P, MIN_P, REPETITION_PENALTY, SEED)  # without a beam
TRAIN = (
    Option(
        "data.cache_workers",
        "Processes that make the cache of a large text",
        int,
        default_text="one for each core",
        minimum=1,
        names=("--workers",),
        metavar="N",
    ),
)
RUN = (
    MAX_TOKENS,
    TEMPERATURE,
    TOP_K,
    TOP_P,
    MIN_P,
    REPETITION_PENALTY,
    STOP,
    SEED,
    WORDS,
    *shared.LEXICAL,
    BEAM,
    N_BEST,
    *shared.RESCORING,
    shared.MARGIN,
    shared.PER_NODE,
    WEIGHTS,
    shared.GRAPH,
    SCORERS,
)
GIVEN = Option(
    "given",
    "Words of each line that are given, where options of a search complete the rest",
    int,
    default_text="half of them",
    minimum=1,
)
EVAL = (
    GIVEN,
    replace(shared.MAX_TOKENS, default_text="twice the longest line"),
    WORDS,
    *shared.LEXICAL,
    replace(BEAM, help="Complete the lines of the text with this beam", default_text="5, 10 with --rescore"),
    *shared.RESCORING,
    shared.MARGIN,
    shared.PER_NODE,
    shared.GRAPH,
    SCORERS,
)
OPTIONS = TaskOptions(TRAIN, RUN, EVAL)
