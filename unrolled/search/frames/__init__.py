"""From a matrix of posteriors to labels and words: best path, prefix beam search, dictionary search."""

from unrolled.search.frames.confidence import word_confidences
from unrolled.search.frames.decoder import Decoder, DecoderStream, decode
from unrolled.search.frames.lexicon import Lexicon
from unrolled.search.frames.prefix import best_path, prefix_search
from unrolled.search.frames.results import Decoded, Word

__all__ = [
    "Decoded",
    "Decoder",
    "DecoderStream",
    "Lexicon",
    "Word",
    "best_path",
    "decode",
    "prefix_search",
    "word_confidences",
]
