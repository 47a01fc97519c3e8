"""Turning a model's distributions into tokens. A model is seen only through `start` and `step`."""

from unrolled.search.beam import Beam, beam_search
from unrolled.search.constraints import Constraint
from unrolled.search.generation import Sample, StopCondition, StoppedBy, Token, generate, sample
from unrolled.search.hypotheses import Found, Hypothesis, Node, Tree
from unrolled.search.ngram import NGram, WordScore
from unrolled.search.ranking import LengthPenalty, Ranking
from unrolled.search.sampling import Sampling
from unrolled.search.scoring import score_targets
from unrolled.search.steps import PrefillModel, Shared, Step, TokenModel, reorder, select
from unrolled.search.stop_strings import StopStrings

__all__ = [
    "Beam",
    "Constraint",
    "Found",
    "Hypothesis",
    "LengthPenalty",
    "NGram",
    "Node",
    "PrefillModel",
    "Ranking",
    "Sample",
    "Sampling",
    "Shared",
    "Step",
    "StopCondition",
    "StopStrings",
    "StoppedBy",
    "Token",
    "TokenModel",
    "Tree",
    "WordScore",
    "beam_search",
    "generate",
    "reorder",
    "sample",
    "score_targets",
    "select",
]
