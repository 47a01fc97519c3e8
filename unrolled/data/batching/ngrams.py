"""Hashed n-grams of texts as sparse rows: how often each occurs, weighed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data.batching.ragged import Ragged, Rows
from unrolled.text.ngrams import NgramKinds, letter_ngrams, run_hash

GROUPS = 2  # runs of words, and character n-grams


class NgramCounts:
    """The hashed n-grams of texts, each text in its words, read in lower case.

    An n-gram that occurs c times in a text weighs 1 + ln c. The weights of a text have the length 1; if words and
    letters are `apart`, those of each group have.

    >>> kinds = NgramKinds(2, (), 1000, apart=True)
    >>> some = NgramCounts([["a", "cat"], [], ["A", "a"]], kinds).gather(np.array([2, 0, 1]))
    >>> some["wide_starts"].tolist(), [round(float(one), 2) for one in some["wide_weights"]]  # "a" twice, "a a"; …
    ([0, 2, 5], [0.86, 0.51, 0.58, 0.58, 0.58])
    """

    def __init__(self, texts: Sequence[Sequence[str]], kinds: NgramKinds) -> None:
        self.kinds = kinds
        numbers: dict[str, int] = {}
        lowered = [[word.lower() for word in words] for words in texts]
        number_of = numbers.setdefault
        found = np.fromiter((number_of(word, len(numbers)) for words in lowered for word in words), dtype=np.int32)
        self._words = Ragged(found, [len(words) for words in lowered])
        self._hashes = np.array([run_hash(word) for word in numbers] or [0], dtype=np.int64) % kinds.buckets
        self._runs = [self._hashed(_runs(lowered, size)) for size in range(2, kinds.words + 1)]
        self._letters = (
            self._hashed([letter_ngrams(word, *kinds.letters) for word in numbers]) if kinds.letters else None
        )

    def _hashed(self, hashes: Sequence[Sequence[int]]) -> Ragged:
        flat = np.fromiter((one for several in hashes for one in several), dtype=np.int64) % self.kinds.buckets
        return Ragged(flat.astype(np.int32), [len(several) for several in hashes])

    def __len__(self) -> int:
        return len(self._words)

    def gather(self, rows: Rows) -> dict[str, NDArray[Any]]:
        """The n-grams of some texts, end to end, for an EmbeddingBag: their buckets, where texts start, and weights."""
        buckets, texts = self.kinds.buckets, np.arange(len(rows))
        words = self._words.flat(rows)
        keys = [GROUPS * np.repeat(texts, self._words.lengths[rows]) * buckets + self._hashes[words]]
        for runs in self._runs:
            keys.append(GROUPS * np.repeat(texts, runs.lengths[rows]) * buckets + runs.flat(rows))
        if self._letters is not None:
            spelt = np.repeat(np.repeat(texts, self._words.lengths[rows]), self._letters.lengths[words])
            keys.append((GROUPS * spelt + 1) * buckets + self._letters.flat(words))
        found, counts = np.unique(np.concatenate(keys), return_counts=True)
        groups, ids = np.divmod(found, buckets)
        weights = 1 + np.log(counts)
        owners = groups // GROUPS
        alike = groups if self.kinds.apart else owners
        lengths = np.sqrt(np.bincount(alike, weights**2))
        per_text = np.bincount(owners, minlength=len(rows))
        return {
            "wide_ngrams": ids,
            "wide_starts": np.cumsum(per_text) - per_text,
            "wide_weights": (weights / lengths[alike]).astype(np.float32),
        }


def _runs(texts: Iterable[Sequence[str]], size: int) -> list[list[int]]:
    """The hashes of all runs of so many words, text by text."""
    return [[run_hash(*run) for run in zip(*(words[i:] for i in range(size)), strict=False)] for words in texts]
