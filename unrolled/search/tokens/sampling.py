"""Sampling: temperature, top-k, nucleus sampling (top-p), min-p, repetition penalty."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real

from unrolled.errors import UserError
from unrolled.search.arrays import Array, arrays_of


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

    >>> import torch
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

    def filtered(self, log_probs: Array, seen: Array | None = None) -> Array:
        """The distribution that is sampled from: log-probabilities (B, V), normalised, -inf where excluded.

        `seen` (B, V) is True at the tokens that the repetition penalty holds for.

        >>> import torch
        >>> seen = torch.tensor([[True, False]])
        >>> Sampling(repetition_penalty=2.0).filtered(torch.tensor([[0.5, 0.5]]).log(), seen).exp()
        tensor([[0.3333, 0.6667]])
        """
        arrays, scores = arrays_of(log_probs), self._scores(log_probs, seen)
        if self.temperature == 0:
            greedy = arrays.arange(scores.shape[-1]) == scores.argmax(-1)[..., None]
            return arrays.where(greedy, arrays.full_like(scores, 0.0), -math.inf)
        return arrays.log_softmax(scores)

    def _scores(self, log_probs: Array, seen: Array | None) -> Array:
        """`filtered` up to a constant in each row, and before greedy choice."""
        arrays = arrays_of(log_probs)
        scores = arrays.wide(log_probs)  # (B, V)
        if seen is not None and self.repetition_penalty != 1:
            penalty = self.repetition_penalty
            scores = arrays.where(seen, arrays.where(scores > 0, scores / penalty, scores * penalty), scores)
        if self.temperature == 0:
            return scores
        if self.temperature != 1:
            if self.temperature < 0.01:  # from the maximum, so that the likeliest token stays finite
                scores = scores - arrays.amax(scores)[..., None]
            scores = scores / max(self.temperature, arrays.tiny(scores))
        if 0 < self.top_k < scores.shape[-1]:
            scores = _keep_top_k(scores, self.top_k)
        if self.top_p < 1:
            scores = _keep_top_p(scores, self.top_p)
        if self.min_p > 0:
            lowest = arrays.amax(scores)[..., None] + math.log(self.min_p)
            scores = arrays.masked_fill(scores, scores < lowest, -math.inf)
        return scores


def choose(sampling: Sampling, log_probs: Array, seen: Array | None, uniform: Sequence[float]) -> list[int]:
    """Draws a token for each row from `sampling.filtered(log_probs, seen)`, by a number in [0, 1) for each.

    A row's token depends on that row alone. It is -1 where there is none to choose: all are -inf, or one is NaN.

    >>> import torch
    >>> choose(Sampling(), torch.tensor([[0.25, 0.75], [0.25, 0.75]]).log(), None, [0.2, 0.3])
    [0, 1]
    """
    arrays = arrays_of(log_probs)
    if str(arrays.device) != "cpu":
        return drawn(sampling, log_probs, seen, arrays.tensor(list(uniform))).tolist()  # type: ignore[no-any-return]
    scores = sampling._scores(log_probs, seen)  # (B, V)
    if sampling.temperature == 0:
        highest, tokens = arrays.best(scores)
        return [i if best > -math.inf else -1 for i, best in zip(tokens.tolist(), highest.tolist(), strict=True)]
    return _draw_by_row(arrays.softmax(scores), uniform)


def _draw_by_row(probs: Array, uniform: Sequence[float]) -> list[int]:
    """The token at which the running sum passes `uniform`. Single calls of numpy cost a fifth of torch's."""
    sums = arrays_of(probs).host(probs.cumsum(-1))
    tokens = [int(row.searchsorted(u * row[-1], side="right")) for row, u in zip(sums, uniform, strict=True)]
    return [token if token < probs.shape[-1] else -1 for token in tokens]  # NaN sorts last


def drawn(sampling: Sampling, log_probs: Array, seen: Array | None, uniform: Array) -> Array:
    """`choose` on torch's tensors, without a look at a value: tokens (B,) for numbers (B,) in [0, 1)."""
    import torch

    scores = sampling._scores(log_probs, seen)  # (B, V)
    if sampling.temperature == 0:
        highest, tokens = scores.max(-1)
        return torch.where(highest > -math.inf, tokens, -1)
    probs = scores.softmax(-1, dtype=torch.float64)
    sums = probs.cumsum(-1)
    at = uniform.to(torch.float64)[:, None] * sums[:, -1:]  # (B, 1)
    tokens = torch.searchsorted(sums, at, right=True).clamp(max=probs.shape[-1] - 1)
    # A parallel sum may grow by a rounding error where an excluded token adds nothing: never take that token.
    tokens = torch.where(probs.gather(-1, tokens) > 0, tokens, probs.argmax(-1, keepdim=True))
    return torch.where(probs.gather(-1, tokens) > 0, tokens, -1).squeeze(-1)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _keep_top_k(scores: Array, k: int) -> Array:
    arrays = arrays_of(scores)
    lowest = arrays.topk(scores, k)[0][:, -1:]  # (B, 1)
    drop = scores < lowest
    # several tokens share the last place; on a GPU it costs less to assume it than to ask
    if str(arrays.device) != "cpu" or int(drop.sum()) < math.prod(drop.shape) - k * len(drop):
        equal = scores == lowest
        room = k - (scores > lowest).sum(-1)[..., None]
        drop |= equal & (equal.cumsum(-1) > room)
    return arrays.masked_fill(scores, drop, -math.inf)


def _keep_top_p(scores: Array, p: float) -> Array:
    arrays = arrays_of(scores)
    ordered, tokens = arrays.sorted(scores)
    sums = arrays.softmax(ordered).cumsum(-1)
    before = arrays.cat([sums[:, :1] * 0, sums[:, :-1]], -1)  # the share of all likelier tokens
    return arrays.scatter(scores, tokens, arrays.masked_fill(ordered, before >= p, -math.inf))
