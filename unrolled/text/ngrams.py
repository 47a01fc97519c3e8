"""Hashed n-grams of a text: words, pairs of words, and character n-grams (Weinberger et al. 2009)."""

from __future__ import annotations

from functools import lru_cache
from zlib import crc32

LETTERS = (2, 5)  # lengths of character n-grams


@lru_cache(maxsize=100_000)
def word_ngrams(word: str) -> tuple[int, ...]:
    """Hashes of a word and of its character n-grams with marked ends; of a long word, those of its first and last part.

    >>> len(word_ngrams("a")), len(word_ngrams("cat"))  # a "^a" "a$" "^a$"; cat "^c" … "^cat$"
    (4, 11)
    """
    spelt = f"^{word[:20]}…{word[-20:]}$" if len(word) > 40 else f"^{word}$"
    low, high = LETTERS
    runs = {spelt[i : i + size] for size in range(low, high + 1) for i in range(len(spelt) - size + 1)}
    return (crc32(word.encode()), *(crc32(b"\0" + run.encode()) for run in sorted(runs)))


def pair_ngram(first: str, second: str) -> int:
    """The hash of two neighbouring words."""
    return crc32(f"{first} {second}".encode())
