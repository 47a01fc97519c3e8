"""Linear models of sparse inputs, fitted to the optimum: logistic regression and ridge regression."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from unrolled.data.batching.ragged import Rows

Link = Literal["softmax", "sigmoid", "squared"]
Objective = Callable[[Tensor], tuple[float, Tensor]]
"""A point → the value and the gradient there."""


@dataclass(frozen=True)
class SparseRows:
    """A sparse matrix (N, F) by its rows and by its columns: both products are sums of bags."""

    shape: tuple[int, int]
    columns: Tensor  # of each entry, row by row
    starts: Tensor  # (N,) where rows start
    values: Tensor
    rows: Tensor  # of each entry, column by column
    column_starts: Tensor  # (F,)
    column_values: Tensor

    @classmethod
    def of(cls, columns: Rows, starts: Rows, values: NDArray[Any], width: int, dtype: torch.dtype) -> SparseRows:
        """From the entries of rows end to end, and where each row starts."""
        lengths = np.diff(np.append(starts, len(columns)))
        rows, order = np.repeat(np.arange(len(starts)), lengths), np.argsort(columns, kind="stable")
        counts = np.bincount(columns, minlength=width)
        by_row = torch.from_numpy(np.ascontiguousarray(values)).to(dtype)
        return cls(
            shape=(len(starts), width),
            columns=_whole(columns),
            starts=_whole(starts),
            values=by_row,
            rows=_whole(rows[order]),
            column_starts=_whole(np.cumsum(counts) - counts),
            column_values=by_row[torch.from_numpy(order)],
        )

    def times(self, weights: Tensor) -> Tensor:
        """X W of weights (F, C): (N, C)."""
        return F.embedding_bag(self.columns, weights, self.starts, mode="sum", per_sample_weights=self.values)

    def transposed_times(self, errors: Tensor) -> Tensor:
        """Xᵀ E of errors (N, C): (F, C)."""
        return F.embedding_bag(self.rows, errors, self.column_starts, mode="sum", per_sample_weights=self.column_values)


def _whole(numbers: Rows) -> Tensor:
    return torch.from_numpy(numbers.astype(np.int64))


@dataclass(frozen=True)
class LinearProblem:
    """min over W, b of Σᵢ wᵢ loss(xᵢ W + b, yᵢ) / N + penalty / 2 · ‖W‖²; the bias b has no penalty.

    `targets` are classes (N,) for softmax, (N, C) of 0 and 1 for sigmoid, and numbers (N, C) for squared (half the
    squared error). `weights` of examples (N, 1), or of each loss (N, C), default to 1.
    """

    rows: SparseRows
    targets: Tensor
    link: Link
    outputs: int
    weights: Tensor | None = None

    def at(self, point: Tensor, penalty: float) -> tuple[float, Tensor]:
        """The objective and its gradient at W with b below it, (F + 1, C)."""
        scores = self.rows.times(point[:-1]) + point[-1]
        losses, errors = _losses(scores, self.targets, self.link)
        share = 1 / len(scores) if self.weights is None else self.weights / len(scores)
        errors = errors * share
        gradient = torch.cat([self.rows.transposed_times(errors) + penalty * point[:-1], errors.sum(0, keepdim=True)])
        value = (losses * share).sum(dtype=torch.float64) + penalty / 2 * point[:-1].square().sum(dtype=torch.float64)
        return float(value), gradient

    def without_rows(self) -> Tensor:
        """The best point with W = 0, (F + 1, C)."""
        weights = self.weights if self.weights is not None else torch.ones(1, 1, dtype=self.rows.values.dtype)
        targets = self.targets
        if self.link == "softmax":
            targets = F.one_hot(targets, self.outputs).to(self.rows.values.dtype)
        total = (weights * torch.ones_like(targets)).sum(0)
        mean = (weights * targets).sum(0) / total
        point = torch.zeros(self.rows.shape[1] + 1, self.outputs, dtype=self.rows.values.dtype)
        share = mean.clamp(1e-6, 1 - 1e-6)
        point[-1] = {"softmax": share.log(), "sigmoid": share.logit(), "squared": mean}[self.link]
        return point

    def curvature(self, penalty: float) -> Tensor:
        """A bound of the second derivative for each row of a point, (F + 1, 1)."""
        bound = {"softmax": 0.5, "sigmoid": 0.25, "squared": 1.0}[self.link] * 0.5
        squares = F.embedding_bag(
            self.rows.rows,
            torch.ones(self.rows.shape[0], 1, dtype=self.rows.values.dtype),
            self.rows.column_starts,
            mode="sum",
            per_sample_weights=self.rows.column_values.square(),
        )
        return torch.cat([bound * squares / self.rows.shape[0] + penalty, torch.full_like(squares[:1], bound)])


def _losses(scores: Tensor, targets: Tensor, link: Link) -> tuple[Tensor, Tensor]:
    """The losses, (N, 1) or of each score (N, C), and their gradients by the scores, (N, C)."""
    if link == "softmax":
        log_probs = scores.log_softmax(-1)
        errors = log_probs.exp()
        errors[torch.arange(len(targets)), targets] -= 1
        return -log_probs.gather(1, targets[:, None]), errors
    if link == "sigmoid":
        return F.binary_cross_entropy_with_logits(scores, targets, reduction="none"), scores.sigmoid() - targets
    errors = scores - targets
    return errors.square() / 2, errors


def fit_linear(
    problem: LinearProblem, penalty: float, start: Tensor | None = None, *, tolerance: float = 1e-3, most: int = 40
) -> Tensor:
    """The weights with the bias below them, (F + 1, C), from a start.

    There the gradient is `tolerance` of what it is with the best bias alone, or `most` steps are made. A fit that ends
    early is a little more regular than the optimum: weights of rare n-grams grow last.
    """
    alone = problem.without_rows()
    enough = tolerance * float(problem.at(alone, penalty)[1].norm())
    steep = problem.curvature(penalty)
    point = alone if start is None else start
    return minimised(lambda point: problem.at(point, penalty), point, steep, enough=enough, most=most)


def minimised(
    objective: Objective, point: Tensor, steep: Tensor, *, enough: float, most: int, memory: int = 5
) -> Tensor:
    """The minimum of a convex function by L-BFGS (Liu & Nocedal 1989), the same on every run.

    `steep` are rough second derivatives, which scale the first direction; it ends where the gradient's length is
    `enough`.
    """
    value, gradient = objective(point)
    pairs: list[tuple[Tensor, Tensor, float]] = []
    for _ in range(most):
        if float(gradient.norm()) <= enough:
            break
        found = _search(objective, point, value, gradient, -_scaled(gradient, pairs, steep))
        if found is None:  # rounding leaves nothing to gain
            if not pairs:
                break
            pairs.clear()
            continue
        moved, value, new = found
        step, change = moved - point, new - gradient
        point, gradient = moved, new
        if (curve := _dot(step, change)) > 0:
            pairs = [*pairs[1 - memory :], (step, change, 1 / curve)]
    return point


def _scaled(gradient: Tensor, pairs: list[tuple[Tensor, Tensor, float]], steep: Tensor) -> Tensor:
    """The gradient times the inverse of the second derivatives, as the last steps tell them."""
    found, shares = gradient.clone(), []
    for step, change, inverse in reversed(pairs):
        share = inverse * _dot(step, found)
        found.add_(change, alpha=-share)
        shares.append(share)
    found /= steep
    if pairs:
        _, change, inverse = pairs[-1]
        found *= 1 / (inverse * _dot(change / steep, change))
    for (step, change, inverse), share in zip(pairs, reversed(shares), strict=True):
        found.add_(step, alpha=share - inverse * _dot(change, found))
    return found


def _dot(one: Tensor, other: Tensor) -> float:
    return float(torch.dot(one.view(-1), other.view(-1)))


def _search(
    objective: Objective, point: Tensor, value: float, gradient: Tensor, direction: Tensor, tries: int = 25
) -> tuple[Tensor, float, Tensor] | None:
    """A step that falls enough and leaves less slope (the weak Wolfe conditions), by bisection; None: there is none."""
    slope = _dot(gradient, direction)
    low, high, size = 0.0, float("inf"), 1.0
    best: tuple[Tensor, float, Tensor] | None = None
    for _ in range(tries if slope < 0 else 0):
        moved = point + size * direction
        there, new = objective(moved)
        if not there <= value + 1e-4 * size * slope:
            high = size
        elif _dot(new, direction) < 0.9 * slope:
            low, best = size, (moved, there, new)
        else:
            return moved, there, new
        size = (low + high) / 2 if high < float("inf") else 2 * size
    return best
