"""Sizes of a forecaster, and rows that it predicted itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unrolled.search.arrays import Array, arrays_of


@dataclass(frozen=True)
class ForecasterSizes:
    """Input and output sizes of a forecaster."""

    inputs: int  # D columns of values
    missing: bool  # True: D more features are 1 for known values
    horizons: tuple[int, ...]
    positions: tuple[int, ...]  # index of each target among the inputs, −1 if it is not an input
    residual: bool
    changes: bool
    lags: int
    categories: tuple[int, ...] = ()  # the number of values of each column of categories, with <unknown>

    @property
    def features(self) -> int:
        """Features that are numbers; the numbers of categories follow them."""
        return self.inputs * (2 if self.missing else 1)

    @property
    def outputs(self) -> tuple[int, int]:
        return len(self.horizons), len(self.positions)

    @property
    def next(self) -> int:
        """The index of the horizon of one step."""
        return self.horizons.index(1)

    def last_values(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """The value of each target in features (…, F), (…, K); NaN where it is not an input."""
        columns = np.concatenate([x[..., : self.inputs], np.full_like(x[..., :1], np.nan)], axis=-1)
        return columns[..., list(self.positions)]

    def with_guess(self, x: Array, guess: Array) -> Array:
        """Features (…, F) with the inputs that are targets replaced by a guess (…, K)."""
        if not self.categories and self.positions == tuple(range(self.features)):
            return guess
        targets = [k for k, position in enumerate(self.positions) if position >= 0]
        places = [self.positions[k] for k in targets]
        x = arrays_of(x).copy(x)
        x[..., places] = guess[..., targets]
        if self.missing:
            x[..., [self.inputs + place for place in places]] = 1.0
        return x
