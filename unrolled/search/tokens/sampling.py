"""Sampling: temperature, top-k, nucleus sampling (top-p), min-p, repetition penalty."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real

import torch
import torch.nn.functional as F
from torch import Tensor

from unrolled.errors import UserError


@dataclass(frozen=True)
class Sampling:
    """Settings for choosing a token from a model's distribution p, applied in this order:

        repetition_penalty θ   l ← l / θ where l > 0, l · θ elsewhere, on tokens already seen in prompt or output
                               (Keskar et al. 2019, CTRL). l is the log-probability, so this is p ← p^θ.
        temperature τ          p ← p^(1/τ), normalised; 0 takes the likeliest token
        top_k                  the k likeliest tokens (Fan et al. 2018)
        top_p                  nucleus sampling: of those, the fewest likeliest tokens whose probabilities
                               add up to at least this (Holtzman et al. 2020)
        min_p                  tokens at least this fraction as likely as the likeliest (Nguyen et al. 2024)

    Of equally likely tokens the one with the lower number counts as the likelier. One token always stays.

    >>> log_probs = torch.tensor([[0.5, 0.2, 0.2, 0.1]]).log()
    >>> Sampling(top_k=2).filtered(log_probs).exp()
    tensor([[0.7143, 0.2857, 0.0000, 0.0000]])
    >>> Sampling(temperature=0.5).filtered(log_probs).exp()
    tensor([[0.7353, 0.1176, 0.1176, 0.0294]])
    """

    temperature: float = 1.0  # 0.7 to 0.9 is usual for text
    top_k: int = 0  # 0: off
    top_p: float = 1.0  # 1: off
    min_p: float = 0.0  # 0: off
    repetition_penalty: float = 1.0  # 1: off; the paper uses 1.2

    def __post_init__(self) -> None:
        # The bounds keep every product finite in float32.
        if not (_is_number(self.temperature) and 0 <= self.temperature <= 1e6):
            raise UserError(
                f"temperature={self.temperature!r} is not a number from 0 to 1e6.",
                "Use 0 for the likeliest token, 1 for the model's own distribution.",
            )
        if not (isinstance(self.top_k, Integral) and not isinstance(self.top_k, bool) and self.top_k >= 0):
            raise UserError(
                f"top_k={self.top_k!r} is not a whole number from 0 up.",
                "Use 0 to switch it off, or how many of the likeliest tokens stay, such as 40.",
            )
        if not (_is_number(self.top_p) and 0 < self.top_p <= 1):
            raise UserError(
                f"top_p={self.top_p!r} is not a number above 0 and at most 1.",
                "Use 1 to switch it off, or the share of probability that stays, such as 0.9.",
            )
        if not (_is_number(self.min_p) and 0 <= self.min_p <= 1):
            raise UserError(
                f"min_p={self.min_p!r} is not a number from 0 to 1.",
                "Use 0 to switch it off, or a fraction of the highest probability, such as 0.05.",
            )
        if not (_is_number(self.repetition_penalty) and 0.01 <= self.repetition_penalty <= 100):
            raise UserError(
                f"repetition_penalty={self.repetition_penalty!r} is not a number from 0.01 to 100.",
                "Use 1 to switch it off, or more to make repetition rarer, such as 1.2.",
            )

    def filtered(self, log_probs: Tensor, seen: Tensor | None = None) -> Tensor:
        """The distribution that is sampled from: log-probabilities (B, V), normalised, -inf where excluded.

        `seen` (B, V) is True at the tokens that the repetition penalty holds for.

        >>> seen = torch.tensor([[True, False]])
        >>> Sampling(repetition_penalty=2.0).filtered(torch.tensor([[0.5, 0.5]]).log(), seen).exp()
        tensor([[0.3333, 0.6667]])
        """
        scores = self._scores(log_probs, seen)
        if self.temperature == 0:
            best = scores.argmax(-1, keepdim=True)
            return torch.full_like(scores, -torch.inf).scatter(-1, best, 0.0)
        return scores.log_softmax(-1)

    def _scores(self, log_probs: Tensor, seen: Tensor | None) -> Tensor:
        """`filtered` up to a constant in each row, and before greedy choice."""
        scores = log_probs if log_probs.dtype == torch.float64 else log_probs.float()  # (B, V)
        if seen is not None and self.repetition_penalty != 1:
            penalty = self.repetition_penalty
            scores = torch.where(seen, torch.where(scores > 0, scores / penalty, scores * penalty), scores)
        if self.temperature == 0:
            return scores
        if self.temperature != 1:
            if self.temperature < 0.01:  # from the maximum, so that the likeliest token stays finite
                scores = scores - scores.amax(-1, keepdim=True)
            scores = scores / max(self.temperature, torch.finfo(scores.dtype).tiny)
        if 0 < self.top_k < scores.shape[-1]:
            scores = _keep_top_k(scores, self.top_k)
        if self.top_p < 1:
            scores = _keep_top_p(scores, self.top_p)
        if self.min_p > 0:
            lowest = scores.amax(-1, keepdim=True) + math.log(self.min_p)
            scores = scores.masked_fill(scores < lowest, -torch.inf)
        return scores


def choose(sampling: Sampling, log_probs: Tensor, seen: Tensor | None, uniform: Sequence[float]) -> list[int]:
    """Draws a token for each row from `sampling.filtered(log_probs, seen)`, by a number in [0, 1) for each.

    A row's token depends on that row alone. It is -1 where there is none to choose: all are -inf, or one is NaN.

    >>> choose(Sampling(), torch.tensor([[0.25, 0.75], [0.25, 0.75]]).log(), None, [0.2, 0.3])
    [0, 1]
    """
    scores = sampling._scores(log_probs, seen)  # (B, V)
    if sampling.temperature == 0:
        highest, tokens = scores.max(-1)
        return [i if best > -math.inf else -1 for i, best in zip(tokens.tolist(), highest.tolist(), strict=True)]
    probs = scores.softmax(-1, dtype=torch.float64)
    return _draw_by_row(probs, uniform) if probs.device.type == "cpu" else _draw_together(probs, uniform)


def _draw_by_row(probs: Tensor, uniform: Sequence[float]) -> list[int]:
    """The token at which the running sum passes `uniform`. Single calls of numpy cost a fifth of torch's."""
    sums = probs.cumsum(-1).numpy()
    tokens = [int(row.searchsorted(u * row[-1], side="right")) for row, u in zip(sums, uniform, strict=True)]
    return [token if token < probs.shape[-1] else -1 for token in tokens]  # NaN sorts last


def _draw_together(probs: Tensor, uniform: Sequence[float]) -> list[int]:
    """The same, without moving the probabilities to the host."""
    at = torch.tensor(uniform, dtype=torch.float64, device=probs.device).unsqueeze(-1)  # (B, 1)
    sums = probs.cumsum(-1)
    tokens = torch.searchsorted(sums, at * sums[:, -1:], right=True).clamp(max=probs.shape[-1] - 1)
    # A parallel sum may grow by a rounding error where an excluded token adds nothing: never take that token.
    tokens = torch.where(probs.gather(-1, tokens) > 0, tokens, probs.argmax(-1, keepdim=True))
    tokens = torch.where(probs.gather(-1, tokens) > 0, tokens, -1)
    return tokens.squeeze(-1).tolist()


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _keep_top_k(scores: Tensor, k: int) -> Tensor:
    lowest = scores.topk(k, dim=-1).values[:, -1:]  # (B, 1)
    drop = scores < lowest
    if int(drop.sum()) < drop.numel() - k * len(drop):  # several tokens share the last place
        equal = scores == lowest
        room = k - (scores > lowest).sum(-1, keepdim=True)
        drop |= equal & (equal.cumsum(-1) > room)
    return scores.masked_fill(drop, -torch.inf)


def _keep_top_p(scores: Tensor, p: float) -> Tensor:
    ordered, tokens = scores.sort(dim=-1, descending=True, stable=True)
    sums = ordered.softmax(-1, dtype=torch.float64).cumsum(-1)
    before = F.pad(sums[:, :-1], (1, 0))  # the share of all likelier tokens
    return scores.scatter(-1, tokens, ordered.masked_fill(before >= p, -torch.inf))
