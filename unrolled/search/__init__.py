"""Turning a model's distributions into tokens.

A model is seen through `start` and `step`, or as a matrix of posteriors (`unrolled.search.frames`).
"""

from unrolled.search.beam import Beam, beam_search
from unrolled.search.constraints import Constraint
from unrolled.search.frames import Decoded, Decoder, DecoderStream, Lexicon, Word, best_path, decode, prefix_search
from unrolled.search.generation import Sample, StopCondition, StoppedBy, Token, generate, sample
from unrolled.search.hypotheses import Found, Hypothesis, Node, Tree
from unrolled.search.ngram import NGram, WordScore
from unrolled.search.ranking import LengthPenalty, Ranking
from unrolled.search.rescoring import Rescored, TextScorer, rescore
from unrolled.search.sampling import Sampling
from unrolled.search.scoring import score_targets
from unrolled.search.steps import PrefillModel, Shared, Step, TokenModel, reorder, select
from unrolled.search.stop_strings import StopStrings
from unrolled.search.word_list import WordList

__all__ = [
    "Beam",
    "Constraint",
    "Decoded",
    "Decoder",
    "DecoderStream",
    "Found",
    "Hypothesis",
    "LengthPenalty",
    "Lexicon",
    "NGram",
    "Node",
    "PrefillModel",
    "Ranking",
    "Rescored",
    "Sample",
    "Sampling",
    "Shared",
    "Step",
    "StopCondition",
    "StopStrings",
    "StoppedBy",
    "TextScorer",
    "Token",
    "TokenModel",
    "Tree",
    "Word",
    "WordList",
    "WordScore",
    "beam_search",
    "best_path",
    "decode",
    "generate",
    "prefix_search",
    "reorder",
    "rescore",
    "sample",
    "score_targets",
    "select",
]
