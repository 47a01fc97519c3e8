"""Options that several tasks have: search, sampling, and pictures."""

from __future__ import annotations

from dataclasses import replace

from unrolled.tasks.options import Option

MAX_TOKENS = Option("max_tokens", "Maximum number of tokens to write", int, minimum=1)
SEED = Option("seed", "Random seed", int)
WORDS = Option("words", "Write only words of this file, one per line", metavar="FILE")

# Words of a lexicon with a language model.
LEXICON = Option("lexicon", "Only words of this file, one per line, each alone or with its tokens", metavar="FILE")
LM = Option("lm", "An n-gram model of words, .arpa or .arpa.gz", metavar="FILE")
LM_WEIGHT = Option("lm_weight", "Weight of the language model", float, default_text="1", minimum=0)
WORD_BONUS = Option("word_bonus", "Score added per word, in nats", float, default_text="0")
UNKNOWN_PENALTY = Option(
    "unknown_penalty", "Score added per word outside the lexicon. Default: only words of the lexicon", float
)
SKIP_UNSPELLABLE = Option(
    "skip_unspellable", "Leave out words of the lexicon that the model's tokens cannot spell", bool, default=False
)
SHARE_ENDS = Option(
    "share_ends", "Words share their ends in memory, too. The results are the same", bool, default=False
)
LEXICAL = (LEXICON, LM, LM_WEIGHT, WORD_BONUS, UNKNOWN_PENALTY, SKIP_UNSPELLABLE, SHARE_ENDS)
REFERENCE_KIND = Option(
    "reference_kind",
    "The true texts of FILE are words of the lexicon, or labels",
    default_text="found from the texts",
    choices=("words", "labels"),
)

# Ranking the best outputs again by another model.
RESCORE = Option(
    "rescore", "Rank the best outputs again by this model: an .arpa file, or a trained generate model", metavar="MODEL"
)
RESCORE_WEIGHT = Option("rescore_weight", "Weight of the log-probability of --rescore", float, default_text="0.5")
RESCORE_BONUS = Option("rescore_bonus", "Score added per word by --rescore, in nats", float, default_text="0")
CANDIDATES = Option("candidates", "Outputs per input that --rescore ranks", int, default_text="10", minimum=2)
RESCORING = (RESCORE, RESCORE_WEIGHT, RESCORE_BONUS, CANDIDATES)

# Sampling.
TEMPERATURE = Option("temperature", "Sampling temperature; 0: the most likely token", float)
TOP_K = Option("top_k", "Top-k sampling: keep the k most likely tokens; 0: all", int)
TOP_P = Option("top_p", "Nucleus sampling (top-p): keep the most likely tokens that hold this probability", float)
MIN_P = Option("min_p", "Keep tokens at least this fraction as likely as the most likely one", float)

# Beam search.
BEAM = Option("beam", "Beam size; 1: greedy", int, minimum=1)
N_BEST = Option("n_best", "Outputs per input", int, default=1, minimum=1)
LENGTH_PENALTY = Option("length_penalty", "Divisor of the log-probability: none, average or gnmt", default_text="gnmt")
ALPHA = Option("alpha", "Exponent of the gnmt length penalty; larger: longer outputs", float, default_text="1")
COVERAGE = Option("coverage", "Weight of the penalty for parts of the input without attention", float, default_text="0")
SEARCH_STOP = Option(
    "search_stop",
    "safe: stop when nothing better can follow; enough: when as many outputs as the beam have ended",
    default_text="safe",
)
MARGIN = Option("margin", "Drop hypotheses this many nats below the best one. Default: no limit", float, minimum=0)
PER_NODE = Option("per_node", "Maximum number of hypotheses at one node of the lexicon", int, minimum=1)
NO_REPEAT_NGRAM = Option(
    "no_repeat_ngram", "Never write the same n tokens twice; 0: allow it", int, default=0, minimum=0
)
MIN_TOKENS = Option("min_tokens", "Minimum number of tokens in an output", int, default=0, minimum=0)
PREFIX = Option("prefix", "Text that every output begins with")
UNKNOWN = Option(
    "unknown",
    "Unknown words: keep or forbid",
    default="auto",
    default_text="auto: forbid",
    choices=("auto", "keep", "forbid", "replace"),
)
PRECISION = Option(
    "precision",
    "Of matrix products: fp32, or bf16 for speed",
    default="auto",
    default_text="auto: bf16 on a GPU that computes it",
    choices=("auto", "fp32", "bf16"),
)
GRAPH = Option(
    "graph",
    "Steps in CUDA graphs on a GPU: auto, or off for one kernel at a time",
    default="auto",
    choices=("auto", "off"),
)
ATTENTION = Option("attention", "Keep the attention weights of each token", bool, default=False, only="python")
SCORERS = Option("scorers", "Scorers beside the model", tuple, default=(), only="python")

PICTURE = Option(
    "picture", "Draw this picture of one input", names=("--picture", "--attention"), metavar="FILE", only="command line"
)

SEARCHING = (BEAM, LENGTH_PENALTY, ALPHA, COVERAGE, SEARCH_STOP, MARGIN, PER_NODE)  # without a temperature
SAMPLING = (TOP_K, TOP_P, MIN_P, replace(SEED, minimum=0))  # with one

# The options of tasks that write text from a source: translate and caption.
WRITING = (
    MAX_TOKENS,
    replace(TEMPERATURE, help="Sample at this temperature instead of searching; 0: the most likely token"),
    *SAMPLING,
    WORDS,
    *LEXICAL,
    replace(BEAM, default_text="5"),
    N_BEST,
    *RESCORING,
    *SEARCHING[1:],
    NO_REPEAT_NGRAM,
    MIN_TOKENS,
    PREFIX,
    UNKNOWN,
    PRECISION,
    GRAPH,
    ATTENTION,
    SCORERS,
)

NOT_SCORED = (N_BEST, PREFIX, ATTENTION, SCORERS)  # of `eval` only in Python


def scored(options: tuple[Option, ...]) -> tuple[Option, ...]:
    """The options of a task that writes, for its `eval`: those that make no score better or worse are for Python."""
    return tuple(replace(option, only="python") if option in NOT_SCORED else option for option in options)


def python_only(options: tuple[Option, ...]) -> tuple[Option, ...]:
    """The same options without flags."""
    return tuple(replace(option, only="python") for option in options)
