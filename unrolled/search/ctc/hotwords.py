"""Hotwords: phrases that a search over frames prefers, while they are being read and once they stand there."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from unrolled.errors import UserError
from unrolled.kernels.native_module import NATIVE
from unrolled.search.arrays import Array, arrays_of
from unrolled.search.lexicon import Lexicon
from unrolled.search.scorers.scorer import Scorer
from unrolled.text.files import utf8_lines

Phrases = Mapping[str, float | None]
Pattern = tuple[tuple[int, ...], float]
ROOT = 0
ROUNDING = 1e-9  # above what adding the scores in another order changes
HOTWORD_WEIGHT = 1.0  # nats for each label of a phrase
MOST_READINGS = 64  # combinations of pronunciations of one phrase


class Hotwords(Scorer):
    """Adds `weight` nats for each label of a phrase, wherever the phrase stands; a phrase may have a weight of its own.

    `patterns` are phrases as labels, each with its weight. While one is being read, every label of it adds its share at
    once, so that the search keeps it; what was added is taken back when it breaks off. With a `separator`, a label, a
    phrase stands between two of them, or at an end of the text. Each phrase counts, also one inside another.

    This is the automaton of Aho and Corasick (1975). A state is the longest beginning of a phrase that the labels so
    far end with.

    >>> hot = Hotwords([((1, 2), 1.5)])
    >>> state, scores = hot.start, []
    >>> for label in (1, 1, 2, 3):
    ...     after = hot.next(state, label)
    ...     scores.append(hot.added(state, after))
    ...     state = after
    >>> scores
    [1.5, 0.0, 1.5, 0.0]
    """

    def __init__(self, patterns: Iterable[Pattern], separator: int | None = None, labels: int = 0) -> None:
        self.separator, self.size = separator, labels
        self.children: list[dict[int, int]] = [{}]
        own: list[tuple[int, float]] = [(0, 0.0)]  # of a state: the labels that count, and their greatest weight
        ends: list[float] = [0.0]
        around = () if separator is None else (separator,)
        for labels_of, weight in patterns:
            state = ROOT
            for read, label in enumerate((*around, *labels_of, *around), 1):
                if state != ROOT:  # a phrase goes on here
                    own[state] = (own[state][0], max(own[state][1], weight))
                if label not in self.children[state]:
                    self.children[state][label] = len(self.children)
                    self.children.append({})
                    own.append((min(read - len(around), len(labels_of)), 0.0))
                    ends.append(0.0)
                state = self.children[state][label]
            ends[state] += weight * len(labels_of)
        self._link(own, ends)
        self.start = ROOT if separator is None else self.next(ROOT, separator)
        self.final_scores = [self._final(state) for state in range(len(self.children))]
        self._rows: dict[int, Array] = {}

    def _link(self, own: Sequence[tuple[int, float]], ends: Sequence[float]) -> None:
        """Finds for each state the next shorter one, its share of phrases under way, and the phrases that end there."""
        self.shorter = [-1] * len(self.children)
        self.partial, self.complete = [0.0] * len(self.children), list(ends)
        self.most = 0.0
        waiting = deque([ROOT])
        while waiting:
            state = waiting.popleft()
            for label, child in self.children[state].items():
                self.shorter[child] = ROOT if state == ROOT else self.next(self.shorter[state], label)
                count, weight = own[child]
                self.partial[child] = max(count * weight, self.partial[self.shorter[child]])
                self.complete[child] += self.complete[self.shorter[child]]
                self.most = max(self.most, self.added(state, child) + ROUNDING)
                waiting.append(child)

    def next(self, state: int, label: int) -> int:
        """The state after one more label."""
        while state >= 0:
            after = self.children[state].get(label)
            if after is not None:
                return after
            state = self.shorter[state]
        return ROOT

    def added(self, state: int, after: int) -> float:
        """The score of the label that led from one state to another."""
        return (self.partial[after] - self.partial[state]) + self.complete[after]

    def _final(self, state: int) -> float:
        """The score added at the end of the labels: a phrase that ends there is complete, one under way is not."""
        ended = 0.0 if self.separator is None else self.complete[self.next(state, self.separator)]
        return ended - self.partial[state]

    @cached_property
    def native(self) -> Any:
        """The same automaton in the C++ core."""
        found = NATIVE.Hotwords()
        arcs = [sorted(one.items()) for one in self.children]
        found.begins = [0, *itertools.accumulate(map(len, arcs))]
        found.labels = [label for one in arcs for label, _ in one]
        found.targets = [target for one in arcs for _, target in one]
        found.shorter, found.start, found.most = self.shorter, self.start, self.most
        found.partial, found.complete, found.final = self.partial, self.complete, self.final_scores
        found.prepare()
        return found

    # as a scorer of any search, beside others

    def initial(self, rows: int) -> Array:
        return np.full(rows, self.start, dtype=np.int64)

    def scores(self, state: Array) -> Array:
        return arrays_of(state).moved(np.stack([self._row(one) for one in state.tolist()]))

    def advance(self, state: Array, tokens: Array) -> Array:
        after = [self.next(one, token) for one, token in zip(state.tolist(), tokens.tolist(), strict=True)]
        return arrays_of(tokens).moved(np.array(after, dtype=np.int64))

    def final(self, state: Array, totals: Array) -> Array:
        added = np.array([self.final_scores[one] for one in state.tolist()])
        return totals + arrays_of(totals).moved(added)

    def _row(self, state: int) -> Array:
        if state not in self._rows:
            if not self.size:
                raise UserError("Hotwords as a scorer need the number of labels.", "Give labels=….")
            self._rows[state] = np.array([self.added(state, self.next(state, label)) for label in range(self.size)])
        return self._rows[state]


class HotwordStates:
    """Hotwords in the Python search with a lexicon: hypotheses are told apart by their state."""

    def __init__(self, hotwords: Hotwords) -> None:
        self.hotwords, self.start = hotwords, hotwords.start

    def next(self, state: int, label: int) -> float:
        """The score of one more label."""
        return self.hotwords.added(state, self.hotwords.next(state, label))

    def after(self, state: int, label: int) -> int:
        return self.hotwords.next(state, label)

    def final(self, state: int, score: float) -> float:
        """The score of a whole sequence, from its score so far."""
        return score + self.hotwords.final_scores[state]


def read_phrases(given: Any) -> Phrases:
    """Phrases with their weights, None where they have none: a file, a list, or a mapping to weights.

    A line of a file is a phrase, or a phrase, a tab and its weight.
    """
    if isinstance(given, str | Path):
        found = dict[str, float | None]()
        for number, line in enumerate(utf8_lines(Path(given), "Give a file with a phrase on each line."), 1):
            phrase, tab, weight = line.partition("\t")
            if phrase.strip():
                found[phrase.strip()] = checked_weight(weight, f"{given}:{number}") if tab else None
    else:
        pairs = given.items() if isinstance(given, Mapping) else ((phrase, None) for phrase in given)
        found = {phrase: None if weight is None else checked_weight(weight, repr(phrase)) for phrase, weight in pairs}
    if not found:
        raise UserError("There are no hotwords.", "Give at least one phrase, or leave them out.")
    return found


def checked_weight(given: Any, place: str) -> float:
    try:
        weight = float(given)
    except (TypeError, ValueError):
        weight = math.nan
    if not 0 < weight < math.inf:
        raise UserError(
            f"{place}: the weight {given!r} is not a number above 0.", "It is nats for each label, such as 1.5."
        )
    return weight


@dataclass(frozen=True)
class PhraseLabels:
    """The ways to spell a phrase: by a lexicon if there is one, otherwise by the labels themselves."""

    labels: Sequence[str]
    symbols: bool
    separator: int | None = None
    lexicon: Lexicon | None = None
    columns: int = 0  # of the posteriors; 0: one for each label

    def hotwords(self, given: Any, weight: float) -> Hotwords:
        """The hotwords of a file, a list or a mapping of phrases."""
        phrases = read_phrases(given)
        known = self._known({word for phrase in phrases for word in phrase.split()})
        patterns = []
        for phrase, own in phrases.items():
            for spelt in itertools.islice(self._spelt(phrase, known), MOST_READINGS):
                patterns.append((spelt, checked_weight(weight, "hotword_weight") if own is None else own))
        return Hotwords(patterns, self.separator, self.columns or len(self.labels))

    def _known(self, words: Collection[str]) -> dict[str, list[list[str]]]:
        """The spellings of these words in the lexicon."""
        found: dict[str, list[list[str]]] = {}
        for word, spelling in [] if self.lexicon is None else self.lexicon.spellings():
            if word in words:
                found.setdefault(word, []).append(spelling)
        return found

    def _spelt(self, phrase: str, known: Mapping[str, Sequence[Sequence[str]]]) -> Iterator[tuple[int, ...]]:
        """The labels of a phrase, of each of its pronunciations."""
        numbers = {label: number for number, label in enumerate(self.labels)}
        words = phrase.split()
        ways: list[Sequence[Sequence[str]]] = [known.get(word, ()) for word in words]
        if self.lexicon is None:
            ways = [[list(word)] for word in words] if not self.symbols else [[[word]] for word in words]
        for word, spellings in zip(words, ways, strict=True):
            if not spellings:
                raise UserError(
                    f"The lexicon does not have {word!r} of the hotword {phrase!r}.", "Add the word, or leave it out."
                )
            unknown = next((label for spelling in spellings for label in spelling if label not in numbers), None)
            if unknown is not None:
                raise UserError(
                    f"The hotword {phrase!r} has {unknown!r}, which is none of the labels.", "Leave it out."
                )
        between = () if self.separator is None else (self.separator,)
        for some in itertools.product(*ways):
            spelt: tuple[int, ...] = ()
            for number, spelling in enumerate(some):
                spelt += (*(between if number else ()), *(numbers[label] for label in spelling))
            yield spelt
