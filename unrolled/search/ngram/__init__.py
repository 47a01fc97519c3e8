"""n-gram language models: scoring, ARPA files."""

from unrolled.search.ngram.model import NGram, WordScore

__all__ = ["NGram", "WordScore"]
