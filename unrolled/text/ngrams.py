"""Hashed n-grams of a text: words, pairs of words, and character n-grams (Weinberger et al. 2009)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

LETTERS = (2, 5)  # lengths of character n-grams


def ngram_ids(words: Sequence[str], buckets: int) -> NDArray[np.int64]:
    """The buckets of all words, pairs of neighbouring words, and character n-grams of words.

    >>> len(ngram_ids(["a", "cat"], 1000))  # a, cat, a cat; "^a" "a$" "^a$"; "^c" … "^cat$"
    16
    """
    lower = [word.lower() for word in words]
    numbers = [number for word in lower for number in _within(word)]
    numbers += [crc32(f"{first} {second}".encode()) for first, second in pairwise(lower)]
    return np.array(numbers, dtype=np.int64) % buckets


@lru_cache(maxsize=100_000)
def _within(word: str) -> tuple[int, ...]:
    """The word and its character n-grams with marked ends; of a very long word, those of its first and last part."""
    spelt = f"^{word[:20]}…{word[-20:]}$" if len(word) > 40 else f"^{word}$"
    low, high = LETTERS
    runs = {spelt[i : i + size] for size in range(low, high + 1) for i in range(len(spelt) - size + 1)}
    return (crc32(word.encode()), *(crc32(b"\0" + run.encode()) for run in sorted(runs)))
