"""Sequences side by side as NumPy's arrays, padded with zeros: what a `Batch` is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data.batching.batch import Batch
from unrolled.text.words import Words


def padded_ids(arrays: Sequence[NDArray[np.integer]]) -> NDArray[np.int64]:
    """Sequences of ids padded with zeros, (N, longest).

    >>> padded_ids([np.array([1, 2]), np.array([3])]).tolist()
    [[1, 2], [3, 0]]
    """
    table = np.zeros((len(arrays), max(1, *map(len, arrays), 1)), dtype=np.int64)
    for row, array in enumerate(arrays):
        table[row, : len(array)] = array
    return table


def lengths_of(sequences: Sequence[Any]) -> NDArray[np.int64]:
    return np.array([len(one) for one in sequences], dtype=np.int64)


def id_arrays(sequences: Sequence[NDArray[np.integer]]) -> Batch:
    """Sequences of ids, and their lengths."""
    return Batch(padded_ids(sequences), np.zeros(0), lengths=lengths_of(sequences))


def word_arrays(words: Words, sentences: Sequence[Sequence[str]]) -> Batch:
    """Word ids (B, T), lengths (B,), and the letters of the distinct words, for `WordInput`."""
    lengths = lengths_of(sentences)
    ids = np.zeros((len(sentences), max(1, int(lengths.max()))), dtype=np.int64)
    spelt = np.zeros_like(ids)
    numbers: dict[str, int] = {}
    for row, sentence in enumerate(sentences):
        ids[row, : len(sentence)] = words.ids(sentence)
        spelt[row, : len(sentence)] = [numbers.setdefault(word, len(numbers)) for word in sentence]
    spellings = [words.spelling(word) for word in numbers] or [np.zeros(1, dtype=np.int32)]
    more = {"spellings": padded_ids(spellings), "spelling_lengths": lengths_of(spellings), "spelt": spelt}
    return Batch(ids, np.zeros(0), lengths=lengths, more=more)


def frame_arrays(sequences: Sequence[NDArray[np.float32]], shape: Sequence[int]) -> Batch:
    """Sequences of frames of one shape, (B, T, …), and their lengths (B,)."""
    lengths = lengths_of(sequences)
    table = np.zeros((len(sequences), max(1, int(lengths.max())), *shape), dtype=np.float32)
    for row, frames in enumerate(sequences):
        table[row, : len(frames)] = frames
    return Batch(table, np.zeros(0), lengths=lengths)
