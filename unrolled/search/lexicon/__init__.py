"""Words, their spellings over a model's tokens, and language models of words: for searches over frames and tokens."""

from unrolled.search.lexicon.graph import SpellingGraph, SpellingPlace
from unrolled.search.lexicon.lexicon import Lexicon
from unrolled.search.lexicon.look_ahead import LookAhead
from unrolled.search.lexicon.parser import At, SentenceParser, WordReading, WordTokens, WrittenWord
from unrolled.search.lexicon.weights import WordWeights
from unrolled.search.lexicon.word_model import UNKNOWN_WORD, WordModel

__all__ = [
    "UNKNOWN_WORD",
    "At",
    "Lexicon",
    "LookAhead",
    "SentenceParser",
    "SpellingGraph",
    "SpellingPlace",
    "WordModel",
    "WordReading",
    "WordTokens",
    "WordWeights",
    "WrittenWord",
]
