"""Outputs of a forecaster and their losses: a value, a probability, a distribution or quantiles.

All work on scaled numbers. A network gives raw outputs (…, K, P) for K columns; `place` moves them to `base`, the value
of a zero output, in units of `scale`, and the result, `estimate`, is the input of losses and readers. Readers take
tensors, or NumPy's arrays.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal

from unrolled.errors import UserError
from unrolled.search.arrays import Array, arrays_of

if TYPE_CHECKING:
    from torch import Tensor

LossName = Literal["mse", "mae", "gaussian", "quantiles", "bernoulli"]
LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)


class Output(ABC):
    """One kind of estimate with `size` numbers for each column."""

    size: int = 1
    values: slice = slice(0, 1)  # the outputs that are values of the column itself
    per_step = False  # True: one loss per step, summed over its columns; False: one per number

    @abstractmethod
    def loss(self, estimate: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        """Estimates (…, K, P) and targets (…, K) → the loss of each number (…, K)."""

    def place(self, raw: Tensor, base: Tensor, scale: Tensor) -> Tensor:
        return base.unsqueeze(-1) + scale.unsqueeze(-1) * raw

    def point(self, estimate: Array) -> Array:
        """The point forecast, (…, K)."""
        return estimate[..., 0]

    def start(self, deviation: Tensor) -> Tensor:
        """Raw outputs (…, P) for errors of this standard deviation (…), in units of the scale."""
        import torch

        return torch.zeros(*deviation.shape, self.size)

    def nll(self, estimate: Array, target: Array) -> Array | None:
        """Negative log-likelihood of each number (…, K) in nats, if the output is a distribution."""
        return None

    def draw(self, estimate: Array, generator: Any = None) -> Array | None:
        """A sample of the distribution, if the output is one."""
        return None

    def guess(self, estimate: Array) -> Array:
        """Input of a roll-out in the place of an unknown number, (…, K)."""
        return self.point(estimate)

    def details(self, estimate: Array) -> dict[str, Array]:
        """Further outputs besides the point forecast: name → (…, K)."""
        return {}

    def interval(self, estimate: Array, level: float) -> tuple[Array, Array]:
        """Bounds (…, K) of the central interval with the probability `level`."""
        raise UserError(
            "The model predicts no distribution, and so no interval.", "Train with model.loss=gaussian or quantiles."
        )


class Value(Output):
    """One number, by its squared (mse) or absolute (mae) error in units of the scale."""

    def __init__(self, absolute: bool) -> None:
        self.absolute = absolute

    def loss(self, estimate: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        error = (estimate[..., 0] - target) / scale
        return error.abs() if self.absolute else error.square()


class Gaussian(Output):
    """A mean and a deviation that the network learns: −log N(y; μ, σ²)."""

    size = 2

    def place(self, raw: Tensor, base: Tensor, scale: Tensor) -> Tensor:
        import torch

        log_deviation = raw[..., 1].clamp(-9.0, 9.0) + scale.log()
        return torch.stack([base + scale * raw[..., 0], log_deviation], dim=-1)

    def loss(self, estimate: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        return self.nll(estimate, target) - scale.log()  # type: ignore[no-any-return]  # in units of the scale, as others

    def nll(self, estimate: Array, target: Array) -> Array:
        mean, log_deviation = estimate[..., 0], estimate[..., 1]
        error = (target - mean) * arrays_of(estimate).exp(-log_deviation)
        return 0.5 * (error * error) + log_deviation + LOG_ROOT_2PI

    def start(self, deviation: Tensor) -> Tensor:
        import torch

        return torch.stack([torch.zeros_like(deviation), deviation.clamp(min=1e-3).log()], dim=-1)

    def draw(self, estimate: Array, generator: Any = None) -> Array:
        arrays, mean = arrays_of(estimate), estimate[..., 0]
        return mean + arrays.exp(estimate[..., 1]) * arrays.normal(mean.shape, generator)

    def details(self, estimate: Array) -> dict[str, Array]:
        return {"deviation": arrays_of(estimate).exp(estimate[..., 1])}

    def interval(self, estimate: Array, level: float) -> tuple[Array, Array]:
        mean, deviation = estimate[..., 0], arrays_of(estimate).exp(estimate[..., 1])
        half = NormalDist().inv_cdf(0.5 + level / 2) * deviation
        return mean - half, mean + half


class Quantiles(Output):
    """Several quantiles by the pinball loss: q · max(y − ŷ, 0) + (1 − q) · max(ŷ − y, 0), their mean times two.

    The point forecast is the median, or the quantile nearest to it. Crossing quantiles are sorted.
    """

    def __init__(self, levels: Sequence[float]) -> None:
        self.levels, self.size, self.values = tuple(levels), len(levels), slice(None)

    def loss(self, estimate: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        import torch

        levels = torch.tensor(self.levels, dtype=estimate.dtype, device=estimate.device)
        error = (target.unsqueeze(-1) - estimate) / scale.unsqueeze(-1)  # (…, K, Q)
        return 2 * torch.maximum(levels * error, (levels - 1) * error).mean(-1)

    def point(self, estimate: Array) -> Array:
        middle = min(range(self.size), key=lambda i: abs(self.levels[i] - 0.5))
        return arrays_of(estimate).ascending(estimate)[..., middle]

    def start(self, deviation: Tensor) -> Tensor:
        import torch

        normal: Tensor = torch.special.ndtri(torch.tensor(self.levels, dtype=torch.float64)).float()
        return deviation.unsqueeze(-1) * normal

    def details(self, estimate: Array) -> dict[str, Array]:
        ordered = arrays_of(estimate).ascending(estimate)
        return {f"q{level:g}": ordered[..., i] for i, level in enumerate(self.levels)}

    def interval(self, estimate: Array, level: float) -> tuple[Array, Array]:
        places = [self._place((1 - level) / 2), self._place((1 + level) / 2)]
        if None in places:
            known = [2 * q - 1 for q in self.levels if q > 0.5 and self._place(1 - q) is not None]
            shown = ", ".join(f"{one:g}" for one in known)
            raise UserError(
                f"An interval of {level:g} lies between the quantiles {(1 - level) / 2:g} and {(1 + level) / 2:g}; the "
                f"model has {', '.join(f'{q:g}' for q in self.levels)}.",
                f"Ask for {shown}, or train with those among model.quantiles." if known else "Train with them.",
            )
        ordered = arrays_of(estimate).ascending(estimate)
        lower, upper = (ordered[..., place] for place in places if place is not None)
        return lower, upper

    def _place(self, level: float) -> int | None:
        return next((i for i, one in enumerate(self.levels) if abs(one - level) < 1e-6), None)


class Bernoulli(Output):
    """The probability that a binary number will be 1; the loss of a step is the sum over its columns."""

    per_step = True

    def place(self, raw: Tensor, base: Tensor, scale: Tensor) -> Tensor:
        return raw

    def loss(self, estimate: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        return self.nll(estimate, target)  # type: ignore[no-any-return]

    def nll(self, estimate: Array, target: Array) -> Array:
        return arrays_of(estimate).binary_cross_entropy(estimate[..., 0], target)

    def point(self, estimate: Array) -> Array:
        return arrays_of(estimate).sigmoid(estimate[..., 0])

    def guess(self, estimate: Array) -> Array:
        return arrays_of(estimate).alike(estimate[..., 0] >= 0, estimate)

    def draw(self, estimate: Array, generator: Any = None) -> Array:
        arrays, chance = arrays_of(estimate), self.point(estimate)
        return arrays.alike(arrays.uniform(chance.shape, generator) < chance, chance)


def make_output(loss: LossName, quantiles: Sequence[float]) -> Output:
    """The output for a loss.

    >>> make_output("quantiles", [0.1, 0.5, 0.9]).size
    3
    """
    if loss == "gaussian":
        return Gaussian()
    if loss == "quantiles":
        return Quantiles(quantiles)
    if loss == "bernoulli":
        return Bernoulli()
    return Value(absolute=loss == "mae")
