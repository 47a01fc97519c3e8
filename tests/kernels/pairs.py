"""Cases of many choices, of which not all combinations can be tried."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import combinations, product
from typing import Any


def pairwise(choices: Mapping[str, tuple[Any, ...]], seed: int) -> Iterator[dict[str, Any]]:
    """Cases such that every two values of two choices meet in one of them."""
    drawn = random.Random(seed)
    sizes = [range(len(values)) for values in choices.values()]
    places = list(combinations(range(len(sizes)), 2))
    all_pairs = [(a, i, b, j) for a, b in places for i, j in product(sizes[a], sizes[b])]
    bits = {pair: 1 << number for number, pair in enumerate(all_pairs)}
    missing = (1 << len(bits)) - 1  # a bit for every pair of values

    def pairs(case: list[int]) -> int:
        return sum(bits[a, case[a], b, case[b]] for a, b in places)

    while missing:
        tries = [[drawn.choice(size) for size in sizes] for _ in range(60)]
        found = [pairs(case) for case in tries]
        best = max(range(60), key=lambda number: (found[number] & missing).bit_count())
        missing &= ~found[best]
        yield {name: values[index] for (name, values), index in zip(choices.items(), tries[best], strict=True)}
