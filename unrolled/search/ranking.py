"""What makes one whole output better than another: its probability, its length, and how much of the source it used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from unrolled.errors import UserError, unknown_name

LengthPenalty = Literal["none", "average", "gnmt"]
LEAST_COVERED = 1e-6  # attention below it counts as so much: the logarithm stays finite


@dataclass(frozen=True)
class Ranking:
    """The score of an output Y of |Y| tokens, its end token counted (Wu et al. 2016, GNMT):

        s(Y) = log P(Y) / lp(|Y|) + β Σ_i log min(Σ_t a_ti, 1)

    lp is 1 (none), |Y| (average), or ((5 + |Y|) / 6)^α (gnmt). The sum is over the source's real positions i, and a_ti
    the attention that token t paid to position i: whatever was left unread makes the score worse. β = 0: no such term.

    >>> Ranking("average").score(torch.tensor([-3.0, -3.2]), torch.tensor([3, 4]))
    tensor([-1.0000, -0.8000])
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

    def divisor(self, lengths: Tensor) -> Tensor:
        """lp of lengths of any shape; it never falls as they grow."""
        lengths = lengths.double()
        if self.length_penalty == "none":
            return torch.ones_like(lengths)
        return lengths if self.length_penalty == "average" else ((5 + lengths) / 6) ** self.alpha

    def score(self, log_probs: Tensor, lengths: Tensor, missed: Tensor | None = None) -> Tensor:
        """log P (…), |Y| (…) and the sum Σ_i log min(…, 1) where it counts (…) → s."""
        scores = log_probs / self.divisor(lengths).to(log_probs.dtype)
        return scores if missed is None else scores + self.coverage * missed

    def bound(self, log_probs: Tensor, longest: Tensor) -> Tensor:
        """A score that no continuation of outputs so far can pass: nothing makes a log-probability rise, lp is at most
        that of the longest output there may be, and the coverage term at most 0."""
        return self.score(log_probs, longest)


def unread(covered: Tensor, mask: Tensor) -> Tensor:
    """Σ_i log min(Σ_t a_ti, 1) over real positions: covered (B, W, S), mask (B, S) → (B, W)."""
    logs = covered.double().clamp(LEAST_COVERED, 1).log()
    return (logs * mask[:, None]).sum(-1)
