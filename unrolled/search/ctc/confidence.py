"""Confidence of each word: the probability that the frames around it read this word and nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from unrolled.search.arrays import Array, arrays_of
from unrolled.search.ctc.decoded import Decoded

Grid = NDArray[np.float64]


def with_confidences(
    found: Decoded, log_probs: Array, blank: int, separator: int | None = None, doubles: bool = False
) -> Decoded:
    """The same reading, each word with its confidence."""
    rated = word_confidences(found, log_probs, blank, separator, doubles)
    words = [word._replace(confidence=value) for word, value in zip(found.words, rated, strict=True)]
    return replace(found, words=words)


def word_confidences(
    found: Decoded, log_probs: Array, blank: int, separator: int | None = None, doubles: bool = False
) -> list[float]:
    """A number from 0 to 1 for each word of a reading of (T, V) log-probabilities.

    A word's frames go from the end of the word before to the beginning of the word after. Its confidence is

        Σ  Π_t p(π_t | frames)    over all paths π through these frames that read the word,

    where separators may stand before and after it. That is what the network alone says: neither the lexicon nor the
    language model has a part in it. With `doubles`, equal labels may follow each other without a blank.
    """
    return label_confidences([word[:3] for word in found.words], found, log_probs, blank, separator, doubles)


def label_confidences(
    words: Sequence[tuple[str, int, int]],
    found: Decoded,
    log_probs: Array,
    blank: int,
    separator: int | None,
    doubles: bool = False,
) -> list[float]:
    """The same for words given as text, first frame and the frame after the last."""
    spelt = [i for i, label in enumerate(found.labels) if label != separator]
    starts, ends = (np.array([found.spans[i][side] for i in spelt]) for side in (0, 1))
    jobs = []
    for _, start, end in words:
        first, last = int(np.searchsorted(starts, start)), int(np.searchsorted(ends, end))
        begins = int(ends[first - 1]) if first else 0
        stops = int(starts[last + 1]) if last + 1 < len(spelt) else len(log_probs)
        jobs.append((begins, stops, [found.labels[i] for i in spelt[first : last + 1]]))
    grid: Grid = arrays_of(log_probs).host(log_probs).astype(np.float64)
    return _read_probabilities(jobs, grid, blank, separator, doubles) if jobs else []


def _read_probabilities(
    jobs: Sequence[tuple[int, int, list[int]]], log_probs: Grid, blank: int, separator: int | None, doubles: bool
) -> list[float]:
    """For each (first frame, frame after the last, labels): the probability that the frames read the labels.

    The forward recursion of CTC, all jobs side by side. The states of a word are blank, label, blank, …, blank; the
    first and the last of them may be separators, too.
    """
    most = 2 * max(len(labels) for _, _, labels in jobs) + 1
    states = np.full((len(jobs), most), blank)
    doubled = np.ones((len(jobs), most), dtype=bool)  # whether a state is not reached from two states before it
    for job, (_, _, labels) in enumerate(jobs):
        states[job, 1 : 2 * len(labels) : 2] = labels
        doubled[job, 3 : 2 * len(labels) : 2] = [a == b and not doubles for a, b in itertools.pairwise(labels)]
    begins = np.array([job[0] for job in jobs])
    lengths = np.array([job[1] - job[0] for job in jobs])
    last = np.array([2 * len(labels) for _, _, labels in jobs])
    rows, columns = np.arange(len(jobs))[:, None], np.arange(most)
    outer = (columns == 0) | (columns == last[:, None])
    scores = np.full((len(jobs), most), -np.inf)
    scores[:, 0] = 0.0
    for step in range(int(lengths.max())):
        frame = np.minimum(begins + step, len(log_probs) - 1)[:, None]
        heard = log_probs[frame, states]  # (words, states)
        if separator is not None:
            heard = np.where(outer, np.logaddexp(heard, log_probs[frame, separator]), heard)
        fresh = scores.copy()
        fresh[:, 1:] = np.logaddexp(fresh[:, 1:], scores[:, :-1])
        if step:  # before the first frame nothing was read: its first label is one state away
            skipped = np.where(doubled[:, 2:], -np.inf, scores[:, :-2])
            fresh[:, 2:] = np.logaddexp(fresh[:, 2:], skipped)
        else:
            fresh[:, 2:] = -np.inf
        scores = np.where(step < lengths[:, None], fresh + heard, scores)
    read = np.logaddexp(scores[rows, last[:, None]], scores[rows, last[:, None] - 1])[:, 0]
    return [min(1.0, float(value)) for value in np.exp(read)]
