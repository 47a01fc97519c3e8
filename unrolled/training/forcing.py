"""Teacher forcing: training on the true past, on the model's own outputs, or on both."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from pydantic import Field, ValidationInfo, field_validator
from torch import Tensor, nn

from unrolled.config import Section, but, only

Forcing = Literal["always", "linear", "exponential", "inverse_sigmoid", "share", "switch", "never"]
OWN_OUTPUTS = only(teacher_forcing=but("always"))
TokenRun = Callable[[Tensor, Any, int], tuple[Tensor, Any]]
"""tokens (B,), the state and the step's number → scores of the next token (B, V) and the new state."""


class ForcingSettings(Section):
    """The past that a model reads in training: the true one, its own outputs, or a mixture."""

    teacher_forcing: Forcing = Field(
        "always",
        json_schema_extra=only({"model.kind": but("stepwise")}),  # which reads no output
        description="The past that is read in training: always the true one, never (its own outputs), less and less of "
        "the true one over the run (linear, exponential, inverse_sigmoid: scheduled sampling), a constant share of it, "
        "or the true one up to a switch.",
    )
    forced_share: float | None = Field(
        None,
        ge=0,
        le=1,
        validate_default=True,
        json_schema_extra=only(teacher_forcing="share"),
        description="teacher_forcing=share: the probability that a step reads the true past.",
    )
    switch_step: int | None = Field(
        None,
        ge=1,
        json_schema_extra=only(teacher_forcing="switch"),
        description="teacher_forcing=switch: updates on the true past, then the model's own outputs.",
    )
    switch_epoch: int | None = Field(
        None,
        ge=1,
        json_schema_extra=only(teacher_forcing="switch", switch_step=None),
        description="The same in epochs; none, and no switch_step: half of the run.",
    )
    feedback: Literal["parallel", "steps"] = Field(
        "parallel",
        json_schema_extra=OWN_OUTPUTS,
        description="Own outputs: steps feeds them back one by one, each made from what the model has read; parallel, "
        "an approximation, makes all at once from one run on the true past.",
    )
    pick: Literal["argmax", "sample"] = Field(
        "sample",
        json_schema_extra=OWN_OUTPUTS,
        description="Own outputs: a token sampled from the distribution, or the likeliest.",
    )

    @field_validator("forced_share")
    @classmethod
    def _given_for_share(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is None and info.data.get("teacher_forcing") == "share":
            raise ValueError("train.teacher_forcing=share needs it: a probability from 0 to 1, such as 0.5")
        return value

    def own_share(self, done: float, step: int = 0, epoch: int = 0) -> float:
        """The probability that a step reads the model's own output.

        `done` is the finished share of the run; `step` updates are done, and `epoch` epochs.

        >>> settings = ForcingSettings(teacher_forcing="switch", switch_step=100)
        >>> settings.own_share(0.1, step=99), settings.own_share(0.1, step=100)
        (0.0, 1.0)
        """
        if self.teacher_forcing == "share":
            assert self.forced_share is not None
            return 1 - self.forced_share
        if self.teacher_forcing != "switch":
            return own_share(self.teacher_forcing, done)
        if self.switch_step is not None:
            return float(step >= self.switch_step)
        return float(done >= 0.5 if self.switch_epoch is None else epoch >= self.switch_epoch)

    @property
    def eager_reason(self) -> str | None:
        """The reason why an update cannot be recorded in a CUDA graph, if there is one."""
        if self.teacher_forcing == "always":
            return None
        return f"train.teacher_forcing={self.teacher_forcing} changes from update to update"

    @property
    def follows_the_end(self) -> bool:
        """True if the share depends on the number of the run's updates."""
        at_half = self.teacher_forcing == "switch" and self.switch_step is None and self.switch_epoch is None
        return at_half or self.teacher_forcing in ("linear", "exponential", "inverse_sigmoid")


def own_share(schedule: Forcing, done: float) -> float:
    """The probability that a step reads the model's own output instead of the truth, after a share `done` of a run.

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


def with_own_guesses(inputs: Tensor, scores: Tensor, share: float, pick: str = "sample") -> Tensor:
    """Input ids (B, T): a share of the tokens, except the first, is picked from the model's distribution.

    `scores` (B, T, V) are the model's for the token after each input. All steps are picked at once from one pass over
    the true tokens (Duckworth et al. 2019): no loop over time, and a guess does not see the guesses before it.
    """
    if share == 0 or inputs.shape[1] < 2:
        return inputs
    rows, steps = inputs.shape
    guesses = picked(scores[:, :-1].flatten(0, 1), pick).view(rows, steps - 1)
    own = torch.rand(rows, steps - 1, device=inputs.device) < share
    return torch.cat([inputs[:, :1], torch.where(own, guesses, inputs[:, 1:])], dim=1)


def picked(scores: Tensor, pick: str) -> Tensor:
    """One token for each row of scores (B, V): the likeliest ("argmax"), or a sample of the distribution."""
    if pick == "argmax":
        return scores.argmax(-1)
    return torch.multinomial(scores.float().softmax(-1), 1).squeeze(1)


def own_places(real: Tensor, share: float, resets: Tensor | None = None) -> Tensor:
    """(B, T), True where a step reads the model's own output: a random `share` of the `real` steps (B, T).

    The first step of a row is always true, and so is a step where a new sequence begins, `resets` (B, T).
    """
    own = torch.rand(real.shape, device=real.device) < share
    own[:, 0] = False
    own &= real
    return own if resets is None or resets.dim() < 2 else own & ~resets


@torch.no_grad()
def fed_back(run: TokenRun, state: Any, inputs: Tensor, own: Tensor, pick: str = "sample") -> Tensor:
    """Input ids (B, T) with the model's own output wherever `own` (B, T) is True, fed back step by step.

    Each output is made from the inputs before it as the model has read them, earlier outputs included. A run over the
    result has the losses and gradients of the loop over time, since no gradient passes through a choice of a token.
    """
    columns = [inputs[:, 0]]
    last = int(own.any(0).nonzero().max()) if bool(own.any()) else 0
    for t in range(1, last + 1):
        scores, state = run(columns[-1], state, t - 1)
        columns.append(torch.where(own[:, t], picked(scores, pick), inputs[:, t]))
    return torch.cat([torch.stack(columns, dim=1), inputs[:, last + 1 :]], dim=1)


@contextmanager
def as_it_writes(network: nn.Module) -> Iterator[None]:
    """A block in which the network computes without dropout and gradients, as when it writes."""
    training = [module for module in network.modules() if module.training]
    network.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True
