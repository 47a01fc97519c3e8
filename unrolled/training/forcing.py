"""Teacher forcing and scheduled sampling."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

Forcing = Literal["always", "linear", "exponential", "inverse_sigmoid", "never"]


def own_share(schedule: Forcing, done: float) -> float:
    """The probability that a step reads the model's own guess instead of the true token, after a share `done` of a run.

    The schedules of scheduled sampling (Bengio et al. 2015), from 0 at the start to 1 at the end of a run:

        linear            done
        exponential       1 − 0.01^done
        inverse_sigmoid   1 / (1 + e^(−12 (done − ½)))

    >>> [round(own_share("linear", d), 2) for d in (0.0, 0.5, 1.0)]
    [0.0, 0.5, 1.0]
    >>> [round(own_share("inverse_sigmoid", d), 2) for d in (0.0, 0.5, 1.0)]
    [0.0, 0.5, 1.0]
    """
    if schedule == "linear":
        return done
    if schedule == "exponential":
        return 1 - math.pow(0.01, done)
    if schedule == "inverse_sigmoid":
        return 1 / (1 + math.exp(-12 * (done - 0.5)))
    return 1.0 if schedule == "never" else 0.0


def with_own_guesses(inputs: Tensor, scores: Tensor, share: float) -> Tensor:
    """Input ids (B, T): a share of the tokens, except the first, is sampled from the model's distribution.

    `scores` (B, T, V) are the model's for the token after each input. All steps are sampled at once from one pass over
    the true tokens (Duckworth et al. 2019): no loop over time, and a guess does not see the guesses before it.
    """
    if share == 0 or inputs.shape[1] < 2:
        return inputs
    rows, steps = inputs.shape
    guesses = torch.multinomial(scores[:, :-1].float().softmax(-1).flatten(0, 1), 1).view(rows, steps - 1)
    own = torch.rand(rows, steps - 1, device=inputs.device) < share
    return torch.cat([inputs[:, :1], torch.where(own, guesses, inputs[:, 1:])], dim=1)
