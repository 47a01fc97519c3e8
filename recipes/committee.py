"""One model that learns from several: they read words that nobody wrote down, and it learns what they agree on."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from unrolled import Model

BEAM, READINGS = 8, 5  # of each model
SHARED = 2  # letters that two words must have in common where one goes over into the other


def invented(words: Sequence[str], count: int, seed: int = 0) -> list[str]:
    """So many words that are not among these: each begins like one of them and ends like another.

    One goes over into the other inside, at two letters that both have.

    >>> invented(["station", "nature"], 2)
    ['nation', 'stature']
    """
    ends: dict[str, list[str]] = defaultdict(list)  # by the letters before them
    for word in words:
        for place in range(SHARED, len(word)):
            ends[word[place - SHARED : place]].append(word[place:])
    draw, known = random.Random(seed), set(words)
    made: dict[str, None] = {}
    for _ in range(50 * count):
        word = draw.choice(words)
        if len(word) > SHARED:
            place = draw.randrange(SHARED, len(word))
            new = word[:place] + draw.choice(ends[word[place - SHARED : place]])
            if new not in known:
                made[new] = None
        if len(made) == count:
            break
    return list(made)


def agreed(models: Sequence[Model], inputs: Sequence[Any]) -> list[tuple[str, float]]:
    """For each input the reading that is the most probable on the mean of all models, and how probable that is."""
    votes: list[dict[str, float]] = [defaultdict(float) for _ in inputs]
    for model in models:
        for answer, vote in zip(model.predict(list(inputs), beam=BEAM, n_best=READINGS), votes, strict=True):
            for reading in (answer, *answer.others):
                vote[reading.text] += math.exp(reading.score) / len(models)
    return [best(vote) for vote in votes]


def best(votes: Mapping[str, float]) -> tuple[str, float]:
    """
    >>> best({"a b": 0.2, "a p": 0.7})
    ('a p', 0.7)
    """
    return max(votes.items(), key=lambda vote: vote[1])
