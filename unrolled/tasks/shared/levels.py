"""The level of tokens that suits some texts, for `level = "auto"`; each task has its own choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from unrolled.text import split_words

MOST_SYMBOLS = 256  # different ones: more of them are words
SHORT = 2  # words in the median text: names, single words
LOOKED_AT = 20_000  # texts


def classifier_level(texts: Sequence[str]) -> Literal["word", "char"]:
    """Words, unless the median text has one or two, such as names: then characters.

    >>> classifier_level(["Abandonato", "van der Berg", "Ôno"]), classifier_level(["a fine film", "not my cup of tea"])
    ('char', 'word')
    """
    some = texts[:1000]  # split at signs too: not all languages have blanks between words
    long = _median([len(text.split()) for text in texts]) > SHORT
    return "word" if long or _median([len(split_words(text)) for text in some]) > SHORT else "char"


def translation_level(texts: Sequence[str]) -> Literal["char", "symbols", "bpe"]:
    """Characters for one or two words, symbols for long texts of few different signs, otherwise sub-words.

    Few are at most 256 different ones, which are short, or occur ten times each.

    >>> texts = ["thought", "aardvark"], ["TH AO T", "AA R D"], ["a dog runs home"]
    >>> [translation_level(some) for some in texts]
    ['char', 'symbols', 'bpe']
    """
    some = [text.split() for text in texts[:LOOKED_AT]]
    lengths = [len(words) for words in some]
    seen = {word for words in some for word in words}
    short = sum(len(word) for word in seen) <= 2.5 * len(seen)
    if len(seen) <= MOST_SYMBOLS and (short or sum(lengths) >= 10 * len(seen)) and max(lengths) > SHORT:
        return "symbols"
    return "bpe" if _median(lengths) > SHORT else "char"


def caption_level(texts: Sequence[str]) -> Literal["char", "word"]:
    """Characters where a translator would write them, otherwise words."""
    return "char" if translation_level(texts) == "char" else "word"


def _median(lengths: Sequence[int]) -> int:
    return sorted(lengths)[len(lengths) // 2]
