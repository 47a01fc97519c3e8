"""Turning a model's distributions into tokens.

A model is seen through `start` and `step`, or as a matrix of posteriors (`unrolled.search.frames`).
"""

from unrolled.search.constraints import Constraint, WordList
from unrolled.search.frames import Decoder, DecoderStream, Hypothesis, Lexicon, Word, best_path, decode, prefix_search
from unrolled.search.generation import Sample, StopCondition, StoppedBy, Token, generate, sample
from unrolled.search.ngram import NGram, WordScore
from unrolled.search.sampling import Sampling
from unrolled.search.steps import PrefillModel, Step, TokenModel, select
from unrolled.search.stop_strings import StopStrings

__all__ = [
    "Constraint",
    "Decoder",
    "DecoderStream",
    "Hypothesis",
    "Lexicon",
    "NGram",
    "PrefillModel",
    "Sample",
    "Sampling",
    "Step",
    "StopCondition",
    "StopStrings",
    "StoppedBy",
    "Token",
    "TokenModel",
    "Word",
    "WordList",
    "WordScore",
    "best_path",
    "decode",
    "generate",
    "prefix_search",
    "sample",
    "select",
]
