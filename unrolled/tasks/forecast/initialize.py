"""The start of a forecaster: the scales of changes, and a linear forecast by ridge regression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unrolled.data.batching.ragged_windows import FrameSequence
from unrolled.data.signals.scaling import ColumnScaling
from unrolled.models.forecaster import Forecaster

MOST_FITTED = 100_000  # steps that the linear path is fitted on
PIECE = 10_000  # steps whose features are made at once for that
PENALTIES = tuple(10.0**k for k in range(-6, 4))


@torch.no_grad()
def start_from(network: Forecaster, examples: Sequence[FrameSequence], frame: ColumnScaling) -> None:
    """Sets scales and linear path from the training examples; the head says nothing of the recurrent layers yet."""
    network.head.weight.zero_()
    width = network.layout.inputs
    changes = np.concatenate([np.diff(example.inputs[:, :width], axis=0) for example in examples])
    network.change_scale.copy_(_usual_size(changes, (width,)))
    if network.output.per_step:
        chance = torch.tensor(frame.mean).clamp(1e-3, 1 - 1e-3)
        network.head.bias.copy_(chance.logit().expand(network.layout.outputs).flatten())
        return
    differences = np.concatenate([_differences(network, example) for example in examples])  # (N, horizons, K)
    network.scale.copy_(_usual_size(differences, network.layout.outputs))
    _fit(network, examples, (torch.from_numpy(differences) / network.scale).flatten(1))


def _usual_size(values: Any, shape: tuple[int, ...]) -> Tensor:
    """The root of the mean square over the first axis; 1 where nothing changes or nothing is known."""
    known = ~np.isnan(values)
    squares = np.where(known, values, 0.0).astype(np.float64) ** 2
    mean = squares.sum(0) / np.maximum(1, known.sum(0)) if len(values) else np.zeros(shape)
    return torch.from_numpy(np.where(mean > 1e-12, np.sqrt(mean), 1.0))


def _differences(network: Forecaster, example: FrameSequence) -> Any:
    """Targets less what a raw output of zero stands for, (T, horizons, K)."""
    return example.targets - network.base(torch.from_numpy(example.inputs)).numpy()


def _fit(network: Forecaster, examples: Sequence[FrameSequence], wanted: Tensor) -> None:
    """The linear path for `wanted` (N, horizons · K), NaN where unknown, and the spread of its errors."""
    output, outputs = network.output, wanted.shape[1]
    deviation, offsets = torch.ones(outputs), torch.zeros(outputs)
    if network.linear is not None:
        every = max(1, -(-len(wanted) // MOST_FITTED))
        chosen = ~wanted.isnan().all(-1) & (torch.arange(len(wanted)) % every == 0)
        features, wanted = _linear_features(network, examples, chosen), wanted[chosen]
        weights = torch.zeros(outputs, features.shape[1])
        for columns in _alike(wanted):
            rows = ~wanted[:, columns[0]].isnan()
            if int(rows.sum()) > 1:
                weights[columns], offsets[columns] = fit_linear(features[rows], wanted[rows][:, columns])
                errors = features[rows] @ weights[columns].T + offsets[columns] - wanted[rows][:, columns]
                deviation[columns] = errors.std(0)
        paths = torch.zeros(outputs, output.size, features.shape[1])
        paths[:, output.values] = weights[:, None]
        network.linear.weight.copy_(paths.flatten(0, 1))
    bias = output.start(deviation)  # (horizons · K, P)
    bias[:, output.values] += offsets[:, None]
    network.head.bias.copy_(bias.flatten())


def _alike(wanted: Tensor) -> list[list[int]]:
    """Columns that are known at the same rows, together."""
    groups: dict[bytes, list[int]] = {}
    for column in range(wanted.shape[1]):
        groups.setdefault(wanted[:, column].isnan().numpy().tobytes(), []).append(column)
    return list(groups.values())


def _linear_features(network: Forecaster, examples: Sequence[FrameSequence], chosen: Tensor) -> Tensor:
    """The inputs of the linear path at the chosen steps of all examples, concatenated."""
    found, begin = [], 0
    for example in examples:
        x = torch.from_numpy(example.inputs)[None]
        seen = torch.cat([network.past(x, None), x[..., : network.layout.inputs]], dim=1)
        for start in range(0, len(example), PIECE):
            part = network.linear_features(seen[:, start : start + PIECE + network.rows])[0]
            found.append(part[chosen[begin + start : begin + start + len(part)]])
        begin += len(example)
    return torch.cat(found)


def fit_linear(features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Ridge regression (N, A) → (N, O) with the penalty chosen on the last fifth: weights (O, A) and means (O,).

    Each output takes the penalty that serves it best; the largest leaves nothing but the mean.
    """
    x, y = features.double(), targets.double()
    cut = max(1, len(x) * 4 // 5)
    errors = torch.stack(
        [((x[cut:] @ w.T + b) - y[cut:]).square().mean(0) for w, b in _ridge(x[:cut], y[:cut])]
    )  # (penalties, O)
    best = errors.nan_to_num(torch.inf).argmin(0) if len(x) > cut else torch.full((y.shape[1],), len(PENALTIES) - 1)
    fitted = _ridge(x, y)
    weights = torch.stack([fitted[int(k)][0][o] for o, k in enumerate(best)])
    offsets = torch.stack([fitted[int(k)][1][o] for o, k in enumerate(best)])
    return weights.float(), offsets.float()


def _ridge(x: Tensor, y: Tensor) -> list[tuple[Tensor, Tensor]]:
    mean_x, mean_y = x.mean(0), y.mean(0)
    values, vectors = torch.linalg.eigh((x - mean_x).T @ (x - mean_x) / len(x))
    projected = vectors.T @ ((x - mean_x).T @ (y - mean_y) / len(x))  # (A, O)
    result = []
    for penalty in PENALTIES:
        weights = (vectors @ (projected / (values.clamp(min=0) + penalty)[:, None])).T  # (O, A)
        result.append((weights, mean_y - weights @ mean_x))
    return result
