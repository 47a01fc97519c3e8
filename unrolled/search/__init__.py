"""Turning a model's distributions into tokens. A model is seen only through `start` and `step`."""

from unrolled.search.generation import Sample, StopCondition, StoppedBy, Token, generate, sample
from unrolled.search.ngram import NGram, WordScore
from unrolled.search.sampling import Sampling
from unrolled.search.steps import PrefillModel, Step, TokenModel, select
from unrolled.search.stop_strings import StopStrings

__all__ = [
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
    "WordScore",
    "generate",
    "sample",
    "select",
]
