"""From a matrix of posteriors to labels and words: best path, prefix beam search, dictionary search."""

from unrolled.search.ctc.confidence import word_confidences
from unrolled.search.ctc.decoded import Decoded, Word
from unrolled.search.ctc.decoder import Decoder, DecoderStream, decode
from unrolled.search.ctc.prefix_beam import best_path, prefix_search

__all__ = [
    "Decoded",
    "Decoder",
    "DecoderStream",
    "Word",
    "best_path",
    "decode",
    "prefix_search",
    "word_confidences",
]
