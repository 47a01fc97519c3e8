"""One model that learns from several: they read words that nobody wrote down, and it learns what they agree on."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

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


def agreed(answers: Sequence[Sequence[Any]]) -> list[tuple[str, float]]:
    """For each input the reading that is the most probable on the mean of all models, and how probable that is.

    `answers` has what each model says of each input: a `Recognized` or `Translation` with its next best.
    """
    votes: list[dict[str, float]] = [defaultdict(float) for _ in answers[0]]
    for said in answers:
        for answer, vote in zip(said, votes, strict=True):
            for reading in (answer, *answer.others):
                vote[reading.text] += math.exp(getattr(reading, "log_prob", reading.score)) / len(answers)
    return [max(vote.items(), key=lambda one: one[1]) for vote in votes]
