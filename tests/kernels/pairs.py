"""Cases of many choices, of which not all combinations can be tried."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any


def pairwise(choices: Mapping[str, tuple[Any, ...]], seed: int) -> Iterator[dict[str, Any]]:
    """Cases such that every two values of two choices meet in one of them."""
    drawn = random.Random(seed)
    names = list(choices)
    missing = {
        (a, x, b, y) for a, b in combinations(names, 2) for x in map(repr, choices[a]) for y in map(repr, choices[b])
    }

    def pairs(case: dict[str, Any]) -> set[tuple[str, str, str, str]]:
        return {(a, repr(case[a]), b, repr(case[b])) for a, b in combinations(names, 2)}

    while missing:
        tries = [{name: drawn.choice(values) for name, values in choices.items()} for _ in range(60)]
        best = max(tries, key=lambda case: len(pairs(case) & missing))
        missing -= pairs(best)
        yield best
