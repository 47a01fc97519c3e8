"""A number in place of a label, data.kind=number: regression on texts and frames."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unrolled.data.readers.labelled import Labelled
from unrolled.errors import UserError

if TYPE_CHECKING:
    from unrolled.tasks.classify.explain import Explanation

Numbers = NDArray[np.float64]
Scale = tuple[float, float]
"""The mean and the standard deviation of the training numbers: the network learns (y − mean) / deviation."""


@dataclass(frozen=True)
class PredictedNumber:
    """The answer to one input: a number.

    >>> str(PredictedNumber(3.25))
    '3.25'
    """

    value: float
    explanation: Explanation | None = None  # if it was asked for

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        return f"{self.value:.6g}"


def numbers_of(examples: Sequence[Labelled]) -> Numbers:
    """The labels as finite numbers, (N,)."""
    numbers = np.zeros(len(examples))
    for row, example in enumerate(examples):
        label = ",".join(example.labels)
        try:
            numbers[row] = float(label)
        except ValueError:
            numbers[row] = math.nan
        if not math.isfinite(numbers[row]):
            raise UserError(f"{example.place}: {label!r} is not a number.", "With data.kind=number every label is one.")
    return numbers


def scale_of(numbers: Numbers) -> Scale:
    """The scale to mean 0 and deviation 1."""
    if np.ptp(numbers) == 0:
        raise UserError(f"All training examples have the number {numbers[0]:g}.", "Give examples of others too.")
    return float(numbers.mean()), float(numbers.std())


def number_scores(truth: Numbers, answers: Numbers) -> dict[str, float]:
    """Errors in the unit of the numbers, and R², the share of the variance that is explained.

    >>> number_scores(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 4.0]))["r2"]
    0.5
    """
    errors = answers - truth
    spread = float(((truth - truth.mean()) ** 2).sum())
    return {
        "rmse": float(np.sqrt((errors**2).mean())),
        "mae": float(np.abs(errors).mean()),
        "r2": 1 - float((errors**2).sum()) / spread if spread else 0.0,
    }
