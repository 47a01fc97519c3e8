"""Batches of a classifier, gathered from tables of all its examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data import Batch
from unrolled.data.batching.ngrams import NgramCounts
from unrolled.data.batching.ragged import Ragged, Rows
from unrolled.data.readers.labelled import Labelled
from unrolled.tasks.classify.assets import ClassifyAssets
from unrolled.tasks.corpus import Corpus
from unrolled.text import split_words
from unrolled.text.ngrams import NgramKinds, run_hash, word_ngrams

if TYPE_CHECKING:
    from unrolled.models.classifier import ClassifierSettings


class NgramTable:
    """The hashed n-grams of all texts, each in its words: those of a distinct word are kept once.

    >>> some = NgramTable([["a", "cat"], [], ["A"]], buckets=1000).gather(np.array([2, 0]))
    >>> some["ngram_starts"].tolist(), len(some["ngrams"])  # of "a" 4, of "cat" 11, and a pair
    ([0, 4], 20)
    """

    def __init__(self, texts: Sequence[Sequence[str]], buckets: int) -> None:
        numbers: dict[str, int] = {}
        number_of = numbers.setdefault
        kinds = np.fromiter(
            (number_of(word.lower(), len(numbers)) for words in texts for word in words), dtype=np.int32
        )
        pairs = np.fromiter(
            (run_hash(*two) % buckets for words in texts for two in pairwise(map(str.lower, words))),
            dtype=np.min_scalar_type(buckets),
        )
        lengths = np.array([len(words) for words in texts], dtype=np.int64)
        of_words = [word_ngrams(word) for word in numbers]
        hashes = np.array([one for several in of_words for one in several], dtype=np.int64) % buckets
        self._words = Ragged(kinds, lengths)
        self._within = Ragged(hashes, [len(several) for several in of_words])
        self._pairs = Ragged(pairs, np.maximum(lengths - 1, 0))
        ends = np.concatenate([[0], np.cumsum(self._within.lengths[kinds])])
        last = np.cumsum(lengths)
        self._counts = ends[last] - ends[last - lengths]  # of a text without its pairs

    def gather(self, rows: Rows) -> dict[str, NDArray[Any]]:
        """The n-grams of some texts, end to end, for an EmbeddingBag; a text's weights have the length 1.

        Those of a text's words come first, then its pairs.
        """
        parts = np.stack([self._counts[rows], self._pairs.lengths[rows]], axis=1)  # (B, 2)
        is_pair = np.repeat(np.tile([False, True], len(rows)), parts.ravel())
        found = np.empty(len(is_pair), dtype=np.int64)
        found[~is_pair] = self._within.flat(self._words.flat(rows))
        found[is_pair] = self._pairs.flat(rows)
        counts = parts.sum(1)
        weights = np.repeat(1 / np.sqrt(np.maximum(counts, 1).astype(np.float32)), counts)
        return {"ngrams": found, "ngram_starts": np.cumsum(counts) - counts, "ngram_weights": weights}


def input_batches(
    assets: ClassifyAssets,
    inputs: Sequence[Any],
    steps: Sequence[Any],
    settings: ClassifierSettings,
    counts: NgramCounts | None = None,
) -> Callable[[Rows, NDArray[Any]], Batch]:
    """A function that makes a batch of the inputs of some numbers, with their targets; `steps` are the reader's.

    `settings` are the network's: it may read neither letters nor n-grams. `counts` are the n-grams of the wide path.
    """
    if settings.kind == "linear":
        assert counts is not None
        return lambda rows, targets: Batch(np.zeros((len(rows), 1), np.int64), targets, more=counts.gather(rows))
    table = assets.reader.table(steps, settings.letter_hidden > 0)
    tables: list[NgramTable | NgramCounts] = [] if counts is None else [counts]
    if settings.ngrams and inputs and isinstance(inputs[0], str):
        words = steps if assets.reader.words is not None else [split_words(text) for text in inputs]
        tables.append(NgramTable(words, settings.ngrams))

    def gather(rows: Rows, targets: NDArray[Any]) -> Batch:
        batch = table.batch(rows, targets)
        for one in tables:
            batch = replace(batch, more={**batch.more, **one.gather(rows)})
        return batch

    return gather


def wide_counts(examples: Sequence[Labelled], kinds: NgramKinds) -> NgramCounts:
    """The n-grams of examples that the wide path reads; those of a corpus are counted once."""

    def count() -> NgramCounts:
        return NgramCounts([split_words(str(example.input)) for example in examples], kinds)

    return examples.once(f"wide counts {kinds}", None, count) if isinstance(examples, Corpus) else count()


def targets_of(
    assets: ClassifyAssets, examples: Sequence[Labelled], multi_label: bool
) -> Callable[[Rows], NDArray[Any]]:
    """A function that gives the targets of the examples of some numbers."""
    if multi_label and assets.scale is None:  # a table of all examples and labels may be large
        return lambda rows: assets.targets([examples[row] for row in rows], multi_label)
    every = assets.targets(examples, multi_label)
    return lambda rows: every[rows]
