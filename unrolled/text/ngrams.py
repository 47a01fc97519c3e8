"""Hashed n-grams of a text: words, runs of words, and character n-grams (Weinberger et al. 2009)."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple
from zlib import crc32

LETTERS = (2, 5)  # lengths of character n-grams


class NgramKinds(NamedTuple):
    """The n-grams that are read: runs of up to `words` words, and character n-grams of some lengths."""

    words: int
    letters: tuple[int, ...]  # the least and the greatest length; (): none
    buckets: int  # that they are hashed to
    apart: bool  # words and letters weigh the same in a text; False: each n-gram does


@lru_cache(maxsize=100_000)
def word_ngrams(word: str) -> tuple[int, ...]:
    """Hashes of a word and of its character n-grams with marked ends; of a long word, those of its first and last part.

    >>> len(word_ngrams("a")), len(word_ngrams("cat"))  # a "^a" "a$" "^a$"; cat "^c" … "^cat$"
    (4, 11)
    """
    return (run_hash(word), *letter_ngrams(word))


def letter_ngrams(word: str, low: int = LETTERS[0], high: int = LETTERS[1]) -> tuple[int, ...]:
    """Hashes of the distinct character n-grams of a word.

    >>> len(letter_ngrams("cat")), len(letter_ngrams("cat", 4, 4))  # the four-grams are "^cat" and "cat$"
    (10, 2)
    """
    return tuple(spelt_hash(run) for run in letter_runs(word, low, high))


def letter_runs(word: str, low: int, high: int) -> list[str]:
    """The distinct character n-grams of `^word$`, sorted; those of its first and last part if it is long.

    >>> letter_runs("ox", 2, 3)
    ['^o', '^ox', 'ox', 'ox$', 'x$']
    """
    spelt = f"^{word[:20]}…{word[-20:]}$" if len(word) > 40 else f"^{word}$"
    return sorted({spelt[i : i + size] for size in range(low, high + 1) for i in range(len(spelt) - size + 1)})


def spelt_hash(letters: str) -> int:
    """The hash of a character n-gram."""
    return crc32(b"\0" + letters.encode())


def run_hash(*words: str) -> int:
    """The hash of a word, or of a run of words."""
    return crc32(" ".join(words).encode())
