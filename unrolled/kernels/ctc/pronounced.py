"""CTC's best path for words that are pronounced in several ways: a path through the graph of all pronunciations."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Spellings = Sequence[Sequence[int]]
Scores = NDArray[np.float64]
AT_ONCE = 1 << 25  # frames times states whose moves are kept; of more, parts are computed again
PARTS = 16
OPEN = -1  # the state at the end is not known yet


def pronounce(
    log_probs: NDArray[np.float32], words: Sequence[Spellings], blank: int, at_once: int = AT_ONCE
) -> tuple[float, list[int]]:
    """The log-probability of the best path, and the number of the spelling of each word on it.

    Memory grows with the frames plus the labels, as in native/ctc/align.cpp. Without a path the score is −inf.
    """
    if len(log_probs) < len(words):
        return -np.inf, [0] * len(words)
    graph = PronunciationGraph(words, blank)
    path = np.zeros(len(log_probs), dtype=np.int64)
    start = np.full(len(graph.labels) + 1, -np.inf)
    score = _solve(graph, log_probs, path, (0, len(path)), (0, start), OPEN, at_once)[1]
    chosen = [0] * len(words)
    if np.isfinite(score):
        for state in path[graph.spelling[path] >= 0].tolist():
            chosen[graph.word[state]] = int(graph.spelling[state])
    return score, chosen


class PronunciationGraph:
    """The states of all pronunciations, word by word: a pause, then for each spelling its labels and blanks.

    `came` (S, P) has for each state those from which a path may come; the number of states stands for none.
    """

    def __init__(self, words: Sequence[Spellings], blank: int) -> None:
        labels, word, spelling = list[int](), list[int](), list[int]()
        came: list[list[int]] = []

        def add(label: int, number: int, which: int, before: Sequence[int]) -> int:
            labels.append(label)
            word.append(number)
            spelling.append(which)
            came.append([len(labels) - 1, *before])
            return len(labels) - 1

        self.starts: list[int] = []  # of each word, then of the last pause
        lasts: list[int] = []
        self.first: list[int] = []  # the states in which a path may begin
        for number, spellings in enumerate(words):
            pause = add(blank, number, -1, lasts)
            self.starts.append(pause)
            ends = []
            for which, spelt in enumerate(spellings):
                state = add(spelt[0], number, which, [pause, *(last for last in lasts if labels[last] != spelt[0])])
                self.first += [state] if number == 0 else []
                for left, right in itertools.pairwise(spelt):
                    gap = add(blank, number, which, [state])
                    state = add(right, number, which, [gap, state] if left != right else [gap])
                ends.append(state)
            lasts = ends
        self.starts.append(add(blank, len(words), -1, lasts))
        self.first.append(0)
        self.last = [*lasts, len(labels) - 1]  # and those in which one may end
        self.labels, self.word, self.spelling = (np.array(column) for column in (labels, word, spelling))
        self.came = np.full((len(came), max(map(len, came))), len(came))
        for state, before in enumerate(came):
            self.came[state, : len(before)] = before


def _solve(
    graph: PronunciationGraph,
    log_probs: NDArray[np.float32],
    path: NDArray[np.int64],
    frames: tuple[int, int],
    start: tuple[int, Scores],
    end: int,
    at_once: int,
) -> tuple[int, float]:
    """Writes the path of some frames that end in a state; returns the state before them, and the score at the end.

    `start` is a state and the scores before these frames from it on.
    """
    begin, stop = frames
    count = stop - begin
    last = graph.starts[-1] if end == OPEN else end
    # a frame moves on by one word at most
    low = max(start[0], graph.starts[max(0, int(graph.word[last]) - count)])
    came = graph.came[low : last + 1] - low
    came[(came < 0) | (came > last - low)] = last + 1 - low
    now = np.append(start[1][low - start[0] : last + 1 - start[0]], -np.inf)
    keep = count * len(came) <= at_once or count == 1
    size = -(-count // PARTS)
    moves, starts = np.zeros((count, len(came)) if keep else (0, 0), dtype=np.uint8), []
    rows, labels = np.arange(len(came)), graph.labels[low : last + 1]
    for t in range(begin, stop):
        if not keep and (t - begin) % size == 0:
            starts.append(now.copy())
            if end != OPEN and stop - t <= size:
                break
        before = now[came]
        best = before.argmax(axis=1)
        scores = before[rows, best]
        if t == 0:
            scores[[state for state in graph.first if state <= last]] = 0.0
        now[:-1] = scores + log_probs[t, labels]
        if keep:
            moves[t - begin] = best
    score = 0.0
    if end == OPEN:
        end = max(graph.last, key=lambda state: now[state])
        score = float(now[end])
    if keep:
        for t in range(stop - 1, begin - 1, -1):
            path[t] = end
            end = int(graph.came[end, moves[t - begin, end - low]])
        return end, score
    for part in range(len(starts) - 1, -1, -1):
        some = (begin + part * size, min(stop, begin + (part + 1) * size))
        end, _ = _solve(graph, log_probs, path, some, (low, starts.pop()), end, at_once)
    return end, score
