"""Turning a model's distributions into tokens.

A model is seen through `start` and `step`, or as a matrix of posteriors (`unrolled.search.ctc`).
"""

from unrolled.search.constraints import Constraint, WordList
from unrolled.search.ctc import Decoded, Decoder, DecoderStream, Lexicon, Word, best_path, decode, prefix_search
from unrolled.search.ngram import NGram, WordScore
from unrolled.search.ranking import LengthPenalty, Ranking
from unrolled.search.rescoring import Rescored, TextScorer, rescore
from unrolled.search.tokens.beam import Beam, beam_search
from unrolled.search.tokens.generation import Sample, StopCondition, StoppedBy, Token, generate, sample
from unrolled.search.tokens.hypotheses import BeamNode, BeamResult, BeamTree, Hypothesis
from unrolled.search.tokens.sampling import Sampling
from unrolled.search.tokens.scoring import score_targets
from unrolled.search.tokens.stop_strings import StopStrings
from unrolled.search.tokens.token_model import PrefillModel, Shared, TokenModel, TokenStep, reorder, select

__all__ = [
    "Beam",
    "BeamNode",
    "BeamResult",
    "BeamTree",
    "Constraint",
    "Decoded",
    "Decoder",
    "DecoderStream",
    "Hypothesis",
    "LengthPenalty",
    "Lexicon",
    "NGram",
    "PrefillModel",
    "Ranking",
    "Rescored",
    "Sample",
    "Sampling",
    "Shared",
    "StopCondition",
    "StopStrings",
    "StoppedBy",
    "TextScorer",
    "Token",
    "TokenModel",
    "TokenStep",
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
