"""The learning rate at every step, as a function of the step alone."""

from __future__ import annotations

import math

from unrolled.training.settings import TrainSettings


def learning_rate(
    step: int,
    *,
    base: float,
    schedule: str,
    warmup_steps: int,
    total_steps: int,
    plateau: float = 1.0,
    hold: float = 0.0,
    decay_to: float = 0.01,
) -> float:
    """The learning rate of update `step` (from 0): linear warm-up, constant for `hold` of the rest, then `schedule`.

    constant and plateau stay; cosine falls to base · `decay_to` by half a cosine; geometric by the same factor at every
    step. `plateau` is the product of all reductions by stalled evaluations.

    >>> [round(learning_rate(s, base=1.0, schedule="cosine", warmup_steps=2, total_steps=6), 3) for s in range(6)]
    [0.5, 1.0, 1.0, 0.855, 0.505, 0.155]
    >>> geometric = dict(base=1.0, schedule="geometric", warmup_steps=0, total_steps=4, hold=0.5)
    >>> [round(learning_rate(s, **geometric), 3) for s in range(5)]
    [1.0, 1.0, 1.0, 0.1, 0.01]
    """
    if step < warmup_steps:
        return base * plateau * (step + 1) / warmup_steps
    done = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    done = min(1.0, max(0.0, done - hold) / (1 - hold))
    if schedule == "cosine":
        return base * plateau * (decay_to + (1 - decay_to) * 0.5 * (1 + math.cos(math.pi * done)))
    return base * plateau * (decay_to**done if schedule == "geometric" else 1.0)


def too_slow_a_rise(settings: TrainSettings, total_steps: int) -> str | None:
    """A warning for a warm-up that is longer than the run, or None.

    >>> print(too_slow_a_rise(TrainSettings(warmup_steps=100, lr=0.002), 60))
    train.warmup_steps=100 is more than the run's 60 updates: the learning rate rises to 0.0012 at the last of them and
    never reaches train.lr=0.002. Use fewer, such as train.warmup_steps=6.
    >>> too_slow_a_rise(TrainSettings(warmup_steps=100), 100)
    """
    if settings.warmup_steps <= total_steps:
        return None
    highest = settings.lr * total_steps / settings.warmup_steps
    return (
        f"train.warmup_steps={settings.warmup_steps} is more than the run's {total_steps} updates: the learning rate "
        f"rises to {highest:.3g} at the last of them and never reaches train.lr={settings.lr:g}. "
        f"Use fewer, such as train.warmup_steps={total_steps // 10}."
    )
