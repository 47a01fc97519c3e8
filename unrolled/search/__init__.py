"""Turning a model's distributions into text: `tokens/` steps a model, `ctc/` reads a matrix of posteriors.

`scorers/` add to the scores of both, `ngram/` are language models. None of them needs torch, except `score_targets` and
`token_scores`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unrolled.lazy import lazy_names

if TYPE_CHECKING:
    from unrolled.search.ctc import Decoded, Decoder, DecoderStream, Word, best_path, decode, prefix_search
    from unrolled.search.lexicon import Lexicon, WordModel, WordTokens, WordWeights, WrittenWord
    from unrolled.search.limits import Limits
    from unrolled.search.ngram import NGram, WordScore
    from unrolled.search.rescoring import Rescored, TextScorer, rescore
    from unrolled.search.scorers import Coverage, Length, LengthPenalty, NoRepeats, Ranking, Scorer, WordList
    from unrolled.search.scorers.dictionary import DictionaryScorer
    from unrolled.search.scorers.ngram import NGramScorer
    from unrolled.search.tokens.beam import Beam, beam_search
    from unrolled.search.tokens.generation import Sample, StopCondition, StoppedBy, Token, generate, sample
    from unrolled.search.tokens.hypotheses import BeamNode, BeamResult, BeamTree, Hypothesis
    from unrolled.search.tokens.sampling import Sampling
    from unrolled.search.tokens.scoring import score_targets, token_scores
    from unrolled.search.tokens.stop_strings import StopStrings
    from unrolled.search.tokens.token_model import PrefillModel, Rows, Shared, TokenModel, TokenStep, reorder, select

__all__ = [
    "Beam",
    "BeamNode",
    "BeamResult",
    "BeamTree",
    "Coverage",
    "Decoded",
    "Decoder",
    "DecoderStream",
    "DictionaryScorer",
    "Hypothesis",
    "Length",
    "LengthPenalty",
    "Lexicon",
    "Limits",
    "NGram",
    "NGramScorer",
    "NoRepeats",
    "PrefillModel",
    "Ranking",
    "Rescored",
    "Rows",
    "Sample",
    "Sampling",
    "Scorer",
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
    "WordModel",
    "WordScore",
    "WordTokens",
    "WordWeights",
    "WrittenWord",
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
    "token_scores",
]

__getattr__ = lazy_names(
    __name__,
    {
        "unrolled.search.ctc": "Decoded Decoder DecoderStream Word best_path decode prefix_search",
        "unrolled.search.lexicon": "Lexicon WordModel WordTokens WordWeights WrittenWord",
        "unrolled.search.limits": "Limits",
        "unrolled.search.ngram": "NGram WordScore",
        "unrolled.search.rescoring": "Rescored TextScorer rescore",
        "unrolled.search.scorers": "Coverage Length LengthPenalty NoRepeats Ranking Scorer WordList",
        "unrolled.search.scorers.dictionary": "DictionaryScorer",
        "unrolled.search.scorers.ngram": "NGramScorer",
        "unrolled.search.tokens.beam": "Beam beam_search",
        "unrolled.search.tokens.generation": "Sample StopCondition StoppedBy Token generate sample",
        "unrolled.search.tokens.hypotheses": "BeamNode BeamResult BeamTree Hypothesis",
        "unrolled.search.tokens.sampling": "Sampling",
        "unrolled.search.tokens.stop_strings": "StopStrings",
        "unrolled.search.tokens.token_model": "PrefillModel Rows Shared TokenModel TokenStep reorder select",
        "unrolled.search.tokens.scoring": "score_targets token_scores",
    },
)
