"""Calibration of probabilities: the expected calibration error, the temperature, and thresholds of labels."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
BINS = 15
WIDEST = 3.0  # |ln T| at most
UNSURE = 1.0  # deviation of ln T that is expected before any example is seen


def calibration_error(confidence: Floats, right: NDArray[np.bool_], bins: int = BINS) -> float:
    """Σ |B| / N · |share right in B − mean confidence in B| over bins B of equal width (Guo et al. 2017).

    >>> round(calibration_error(np.array([0.9, 0.9, 0.6, 0.6]), np.array([True, True, True, False])), 3)
    0.1
    """
    if not len(confidence):
        return 0.0
    numbers = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)  # a bin holds its upper end
    sums = np.bincount(numbers, right.astype(np.float64) - confidence, minlength=bins)
    return float(np.abs(sums).sum() / len(confidence))


def fit_temperature(scores: Floats, targets: NDArray[np.integer]) -> float:
    """T that makes softmax(scores / T) most likely for the targets (N,); below 0 there is none (Guo et al. 2017).

    ln T is expected around 0 with deviation 1, which counts as little as an example or two: without it, T would be 0
    where every answer is right.

    >>> sure = np.array([[4.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    >>> fit_temperature(sure, np.array([0, 1, 1])) > 1
    True
    """
    known = targets >= 0
    rows, truth = scores[known].astype(np.float64), targets[known]
    if not len(rows):
        return 1.0
    rows = rows - rows[np.arange(len(rows)), truth][:, None]

    def slope(log: float) -> float:
        """The derivative of the loss by ln T."""
        scaled = rows / math.exp(log)
        powers = np.exp(scaled - scaled.max(axis=1, keepdims=True))
        return -float((powers * scaled).sum(axis=1) @ (1 / powers.sum(axis=1))) + log / UNSURE**2

    return _root(slope)


def fit_temperature_of_labels(scores: Floats, targets: Floats) -> float:
    """T that makes σ(scores / T) most likely for targets (N, C) of 0 and 1, as `fit_temperature`."""
    rows, truth = scores.astype(np.float64), targets.astype(np.float64)

    def slope(log: float) -> float:
        scaled = rows / math.exp(log)
        return float(((truth - 1 / (1 + np.exp(-np.clip(scaled, -500, 500)))) * scaled).sum()) + log / UNSURE**2

    return _root(slope)


def _root(slope: object) -> float:
    """exp of the zero of a function that falls below and rises above it, by bisection."""
    assert callable(slope)
    low, high = -WIDEST, WIDEST
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return math.exp((low + high) / 2)


def fit_thresholds(probabilities: Floats, targets: NDArray[np.bool_], usual: float = 0.5) -> list[float]:
    """For each label the threshold of the highest F1, (N, C) each: it lies between two neighbouring probabilities.

    Of equally good ones the nearest to the usual one is taken; a label that no example has keeps that.

    >>> fit_thresholds(np.array([[0.1], [0.3], [0.4]]), np.array([[False], [True], [True]]))
    [0.2]
    """
    found = []
    for chances, truth in zip(probabilities.T.astype(np.float64), targets.T, strict=True):
        if not truth.any():
            found.append(usual)
            continue
        order = np.argsort(-chances, kind="stable")
        ranked, hits = chances[order], np.cumsum(truth[order])
        ends = np.flatnonzero(np.append(ranked[1:] < ranked[:-1], True))  # a cut must not part equal ones
        scores = 2 * hits[ends] / (ends + 1 + truth.sum())
        best = ends[scores >= scores.max() - 1e-12]
        below = np.append(ranked, 0.0)[best + 1]
        cuts = [
            usual if low < usual <= high else (low + high) / 2 for low, high in zip(below, ranked[best], strict=True)
        ]
        found.append(round(float(min(cuts, key=lambda cut: abs(cut - usual))), 6))
    return found
