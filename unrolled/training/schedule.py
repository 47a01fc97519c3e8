"""The learning rate at every step, as a function of the step alone."""

from __future__ import annotations

import math


def learning_rate(
    step: int, *, base: float, schedule: str, warmup_steps: int, total_steps: int, plateau: float = 1.0
) -> float:
    """The rate for update number `step` (from 0): a linear rise, then constant, or half a cosine down to base / 100.

    `plateau` is the product of the divisions that stalled evaluations have caused.

    >>> [round(learning_rate(s, base=1.0, schedule="cosine", warmup_steps=2, total_steps=6), 3) for s in range(6)]
    [0.5, 1.0, 1.0, 0.855, 0.505, 0.155]
    """
    if step < warmup_steps:
        return base * plateau * (step + 1) / warmup_steps
    if schedule != "cosine":
        return base * plateau
    done = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    floor = 0.01
    return base * plateau * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, done))))
