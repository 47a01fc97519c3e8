"""n-gram language models: scoring, ARPA files."""

from unrolled.search.ngram.model import NGram, WordScore
from unrolled.search.ngram.shards import Counts

__all__ = ["Counts", "NGram", "WordScore"]
