"""Random generators for many examples: NumPy's own, seeded at once instead of one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

Words = NDArray[np.uint32]
WORDS = 4  # of 32 bits, in the pool of a SeedSequence


class ExampleSeeds:
    """The generators of examples 0 … count − 1 in an epoch.

    >>> seeds = ExampleSeeds(3, 1, 10)
    >>> seeds.generator(7).random() == np.random.default_rng((3, 1, 7)).random()
    True
    """

    def __init__(self, seed: int, epoch: int, count: int) -> None:
        first = [word for number in (seed, epoch) for word in _words(number)]
        numbers = np.arange(count, dtype=np.uint32)
        self._states = seed_states([np.full(count, word, dtype=np.uint32) for word in first] + [numbers])

    def states(self, numbers: Sequence[int]) -> NDArray[np.uint64]:
        """The words that seed the generators of some examples, (N, 4)."""
        return self._states[numbers]

    def generator(self, number: int) -> np.random.Generator:
        """The same as np.random.default_rng((seed, epoch, number))."""
        ready: Any = _Ready(self._states[number])  # NumPy's stubs know SeedSequence alone
        return np.random.Generator(np.random.PCG64(ready))


class _Ready(ISeedSequence):
    """A sequence of which the four words that PCG64 asks for are known."""

    def __init__(self, state: NDArray[np.uint64]) -> None:
        self._state = state

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[np.uint64]:
        assert (n_words, dtype) == (len(self._state), np.uint64)
        return self._state


def seed_states(entropy: list[Words]) -> NDArray[np.uint64]:
    """`SeedSequence(…).generate_state(4, np.uint64)` for many seeds, (N, 4); `entropy` are their words, (N,) each.

    The algorithm is O'Neill's (2015, "Developing a seed_seq alternative") with NumPy's constants.
    """
    mixing = _Hash(0x43B0D7E5, 0x931E8875)
    nothing = np.zeros_like(entropy[0])
    pool = [mixing(entropy[i] if i < len(entropy) else nothing) for i in range(WORDS)]
    for source in range(WORDS):
        for place in range(WORDS):
            if place != source:
                pool[place] = _mix(pool[place], mixing(pool[source]))
    for word in entropy[WORDS:]:
        for place in range(WORDS):
            pool[place] = _mix(pool[place], mixing(word))
    output = _Hash(0x8B51F9DD, 0x58F38DED)
    state = np.stack([output(pool[i % WORDS]) for i in range(2 * WORDS)], axis=1)  # (N, 8)
    return (state[:, 0::2] | state[:, 1::2].astype(np.uint64) << np.uint64(32)).astype(np.uint64)


class _Hash:
    """A hash whose constant changes with every use."""

    def __init__(self, constant: int, factor: int) -> None:
        self._constant, self._factor = constant, factor

    def __call__(self, values: Words) -> Words:
        values = values ^ np.uint32(self._constant)
        self._constant = self._constant * self._factor & 0xFFFFFFFF
        values = values * np.uint32(self._constant)
        return values ^ values >> np.uint32(16)


def _mix(x: Words, y: Words) -> Words:
    mixed: Words = x * np.uint32(0xCA01F9DD) - y * np.uint32(0x4973F715)
    return mixed ^ mixed >> np.uint32(16)


def _words(number: int) -> list[int]:
    """A number in words of 32 bits, the lowest first."""
    words = [number & 0xFFFFFFFF]
    while number := number >> 32:
        words.append(number & 0xFFFFFFFF)
    return words
