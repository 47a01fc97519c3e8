"""Length penalty and coverage: what finished outputs are ranked by, beside their log-probability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from unrolled.errors import UserError, unknown_name
from unrolled.search.arrays import Array, arrays_of
from unrolled.search.scorers.scorer import Scorer, State

LengthPenalty = Literal["none", "average", "gnmt"]
LEAST_COVERED = 1e-6  # a floor for attention, which keeps the logarithm finite


@dataclass(frozen=True)
class Ranking:
    """The score of an output Y of |Y| tokens, its end token counted (Wu et al. 2016, GNMT):

        s(Y) = log P(Y) / lp(|Y|) + β Σ_i log min(Σ_t a_ti, 1)

    lp is 1 (none), |Y| (average), or ((5 + |Y|) / 6)^α (gnmt). The sum is over the source's real positions i; a_ti is
    the attention that token t paid to position i. Source positions left unread lower the score. β = 0: no such term.
    """

    length_penalty: LengthPenalty = "gnmt"
    alpha: float = 0.6
    coverage: float = 0.0  # β

    def __post_init__(self) -> None:
        if self.length_penalty not in get_args(LengthPenalty):
            raise unknown_name("length penalty", self.length_penalty, get_args(LengthPenalty))
        for name, usual in (("alpha", "0.6"), ("coverage", "0.2")):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= 100:
                raise UserError(
                    f"{name}={value!r} is not a number from 0 to 100.", f"Use 0 for none; {usual} is usual."
                )

    def scorers(self, memory_mask: Array | None = None) -> list[Scorer]:
        """The scorers of this formula, to come after all others; the mask (rows, S) is True at real positions."""
        length: list[Scorer] = [] if self.length_penalty == "none" else [Length(self.length_penalty, self.alpha)]
        return length + ([Coverage(self.coverage, memory_mask)] if self.coverage else [])


class Length(Scorer):
    """Divides the total by lp(|Y|); the state counts tokens.

    >>> import torch
    >>> Length("average").final(torch.tensor([3, 4]), torch.tensor([-3.0, -3.2]))
    tensor([-1.0000, -0.8000])
    """

    def __init__(self, penalty: LengthPenalty = "gnmt", alpha: float = 0.6) -> None:
        self.penalty, self.alpha = penalty, alpha

    def divisor(self, lengths: Array) -> Array:
        """lp, which never falls as lengths grow."""
        lengths = arrays_of(lengths).double(lengths)
        return lengths if self.penalty == "average" else ((5 + lengths) / 6) ** self.alpha

    def initial(self, rows: int) -> Array:
        return np.zeros(rows, dtype=np.int64)

    def advance(self, state: Array, tokens: Array) -> Array:
        return state + 1

    def final(self, state: Array, totals: Array) -> Array:
        return totals / arrays_of(totals).alike(self.divisor(state), totals)

    def bound(self, state: Array, totals: Array, longest: Array) -> Array:
        """A total below 0 is best at the longest output there may be, one above 0 at the next token."""
        arrays = arrays_of(totals)
        return totals / arrays.alike(self.divisor(arrays.where(totals > 0, state + 1, longest)), totals)


class Coverage(Scorer):
    """Adds β Σ_i log min(Σ_t a_ti, 1) at the end; the state holds each hypothesis's attention so far, and the mask."""

    only_lowers = True

    def __init__(self, weight: float, mask: Array | None = None) -> None:
        self.weight, self.mask = weight, mask

    def initial(self, rows: int) -> State:
        return None, self.mask

    def attend(self, state: State, attention: Array | None) -> State:
        if attention is None:
            raise UserError("This model has no attention, so there is no coverage.", "Leave out coverage.")
        covered, mask = state
        return attention if covered is None else covered + attention, mask

    def final(self, state: State, totals: Array) -> Array:
        covered, mask = state
        arrays = arrays_of(covered)
        logs = arrays.log(arrays.clip(arrays.double(covered), LEAST_COVERED, 1))  # (B, S)
        return totals + self.weight * (logs if mask is None else logs * mask).sum(-1)
