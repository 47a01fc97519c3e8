"""The weight of a language model and the bonus of a word that give the fewest errors on texts that are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

WEIGHTS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
BONUSES = (-2.0, -1.0, 0.0, 1.0, 2.0, 4.0)
WEIGHT, BONUS = 1.0, 0.0  # a decoder's defaults

Errors = tuple[float, float]
"""The error rate that counts, and one that decides between equals: of words, and of characters."""


@dataclass(frozen=True)
class Tuned:
    """The best setting, its errors, and those of every setting that was tried."""

    lm_weight: float | None  # none: there is no language model
    word_bonus: float
    errors: Errors
    tried: dict[tuple[float | None, float], Errors]

    @property
    def options(self) -> str:
        """As they are typed."""
        weight = "" if self.lm_weight is None else f"--lm-weight {self.lm_weight:g} "
        return f"{weight}--word-bonus {self.word_bonus:g}"

    @property
    def tie(self) -> str:
        """A message if other settings make as few errors, or nothing."""
        equal = sum(errors == self.errors for errors in self.tried.values())
        if equal == 1:
            return ""
        usual = "" if self.lm_weight is None else f"--lm-weight {WEIGHT:g} "
        usual += f"--word-bonus {BONUS:g}"
        which = f"All {equal}" if equal == len(self.tried) else f"{equal} of them"
        return f"{which} make the same errors: of these it is the nearest to {usual}. More references tell them apart."


def tune(
    errors: Callable[[float | None, float], Errors],
    *,
    has_lm: bool,
    lm_weight: float | None = None,
    word_bonus: float | None = None,
) -> Tuned:
    """Tries a grid, then twice the neighbours of the best at half the distance.

    Of settings with the same errors the nearest to WEIGHT and BONUS is the best. What is given is not changed.
    `errors(lm_weight, word_bonus)` are those of a setting.

    >>> found = tune(lambda weight, bonus: (abs(weight - 0.6) + abs(bonus - 1.3), 0.0), has_lm=True)
    >>> found.options, len(found.tried)
    ('--lm-weight 0.625 --word-bonus 1.25', 57)
    """
    weights: Sequence[float | None] = [None] if not has_lm else WEIGHTS if lm_weight is None else [lm_weight]
    bonuses: Sequence[float] = BONUSES if word_bonus is None else [word_bonus]
    tried: dict[tuple[float | None, float], Errors] = {}

    def best_of(settings: Iterable[tuple[float | None, float]]) -> tuple[float | None, float]:
        for weight, bonus in settings:
            if (weight, bonus) not in tried:
                tried[weight, bonus] = errors(weight, bonus)
        return min(tried, key=lambda one: (tried[one], *_from_usual(*one)))

    best = best_of((weight, bonus) for weight in weights for bonus in bonuses)
    for size in (0.25, 0.125):
        around = [best[0]] if best[0] is None or lm_weight is not None else _near(best[0], size, least=0.0)
        beside = [best[1]] if word_bonus is not None else _near(best[1], 2 * size)
        best = best_of((weight, bonus) for weight in around for bonus in beside)
    return Tuned(*best, tried[best], tried)


def _from_usual(weight: float | None, bonus: float) -> tuple[float, float]:
    return 0.0 if weight is None else abs(weight - WEIGHT), abs(bonus - BONUS)


def _near(value: float, step: float, least: float = float("-inf")) -> list[float]:
    return [one for one in (value - step, value, value + step) if one >= least]
