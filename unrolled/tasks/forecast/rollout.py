"""Roll-outs on a series whose end is known: how much worse a model is when it reads its own predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unrolled.data.batching.ragged_windows import FrameSequence
from unrolled.data.readers.series.read_series import Numbers
from unrolled.data.signals.scaling import ColumnScaling
from unrolled.model import Model
from unrolled.models.forecaster import Forecaster

MOST_ORIGINS = 256  # roll-outs of one evaluation


@dataclass
class RollOut:
    """Squared errors (steps, K) in scale, summed over roll-outs.

    `free` reads its own predictions, `forced` the true past; `last` says the value at the beginning all along, and
    `seasonal` the last period again and again, with `free_there` the errors of `free` at steps that have one.
    """

    frame: ColumnScaling
    steps: int
    origins: int = 0
    count: Numbers = field(default_factory=lambda: np.zeros(0))
    free: Numbers = field(default_factory=lambda: np.zeros(0))
    forced: Numbers = field(default_factory=lambda: np.zeros(0))
    last: Numbers = field(default_factory=lambda: np.zeros(0))
    seasonal: Numbers = field(default_factory=lambda: np.zeros(0))
    free_there: Numbers = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        shape = (self.steps, len(self.frame.roles.targets))
        self.count, self.free, self.forced, self.last = (np.zeros(shape) for _ in range(4))
        self.seasonal, self.free_there = np.zeros(shape), np.zeros(shape)

    def scores(self) -> dict[str, float]:
        """Means over all steps of all roll-outs, in the data's own units."""
        total, unit = max(1.0, float(self.count.sum())), self.frame.target_scale() ** 2
        free, forced = (float((sums * unit).sum() / total) for sums in (self.free, self.forced))
        scores = {
            "free_running_steps": self.steps,
            "free_running_mse": free,
            "teacher_forced_mse": forced,
            "exposure_gap": free - forced,
        }
        if float(self.last.sum()) > 0:  # with each column in its scale; NaN where a target is not read
            scores["free_running_skill"] = 1 - float(self.free.sum() / self.last.sum())
        if float(self.seasonal.sum()) > 0:
            scores["free_running_seasonal_skill"] = 1 - float(self.free_there.sum() / self.seasonal.sum())
        return scores


@torch.no_grad()
def free_run(model: Model, examples: Sequence[FrameSequence], steps: int) -> RollOut:
    """Roll-outs of `steps` steps, or as many as the longest scored part has, from origins spread evenly over those.

    At each step the targets that are read are the model's own predictions; other inputs are the true ones.
    """
    network = model.network
    assert isinstance(network, Forecaster)
    steps = max(1, min(steps, max(_scored(example, network.layout.next)[1] for example in examples)))
    run = RollOut(model.assets, steps)
    each = max(1, MOST_ORIGINS // len(examples))
    for example in examples[:MOST_ORIGINS]:
        origins = _origins(example, network.layout.next, steps, each)
        if len(origins):
            _roll(run, network, example, origins, model.device)
    return run


def _origins(example: FrameSequence, following: int, steps: int, most: int) -> NDArray[np.int64]:
    """Rows after which a roll-out begins: evenly spaced, no closer than a roll-out is long."""
    first, span = _scored(example, following)
    if span < steps:
        return np.zeros(0, dtype=np.int64)
    number = min(most, 1 + (span - steps) // steps)
    return np.linspace(first, first + span - steps, number).round().astype(np.int64)


def _scored(example: FrameSequence, following: int) -> tuple[int, int]:
    """The first row whose next one is scored, and how many rows there are from it to the last."""
    rows = np.flatnonzero(~np.isnan(example.targets[:, following]).all(-1))
    return (int(rows[0]), int(rows[-1] - rows[0]) + 1) if len(rows) else (0, 0)


def _roll(
    run: RollOut, network: Forecaster, example: FrameSequence, origins: NDArray[np.int64], device: torch.device
) -> None:
    following = network.layout.next
    features = torch.from_numpy(example.inputs).to(device)
    forced, states, ahead = _teacher_forced(network, features, origins)
    state = tuple(torch.cat(parts) for parts in zip(*states, strict=True))
    estimate = torch.stack(ahead)  # (N, K, P): of the row after each origin
    held = _last_values(network, features[torch.from_numpy(origins).to(device)])
    for k in range(run.steps):
        rows = torch.from_numpy(origins + k)
        truth = torch.from_numpy(example.targets[origins + k, following]).to(device)  # (N, K)
        guess = network.output.guess(estimate)
        _count(run, k, truth, network.output.point(estimate), forced[rows.to(device)], held)
        if run.frame.period is not None:
            back = torch.from_numpy(origins + 1 + k - run.frame.period * (1 + k // run.frame.period)).to(device)
            before = _last_values(network, features[back.clamp(min=0)])
            before[back < run.frame.start_row] = torch.nan
            _compare(run, k, truth, network.output.point(estimate), before)
        if k + 1 < run.steps:
            x = network.with_guess(features[rows.to(device) + 1], guess)
            after, state = network(x[:, None], state)
            estimate = after[:, 0, following]
    run.origins += len(origins)


def _teacher_forced(
    network: Forecaster, features: Tensor, origins: NDArray[np.int64]
) -> tuple[Tensor, list[Any], list[Tensor]]:
    """Next-step predictions (T, K) on the true past; states and estimates at the origins."""
    points, states, ahead, state, begin = [], [], [], None, 0
    for end in [*(origins + 1).tolist(), len(features)]:
        if end == begin:
            continue
        estimate, state = network(features[None, begin:end], state)
        estimate = estimate[0, :, network.layout.next]  # (T, K, P)
        points.append(network.output.point(estimate))
        states.append(state)
        ahead.append(estimate[-1])
        begin = end
    return torch.cat(points), states[: len(origins)], ahead[: len(origins)]


def _last_values(network: Forecaster, x: Tensor) -> Tensor:
    """The last value of each target (N, K), NaN where it is not read."""
    columns = torch.cat([x[..., : network.layout.inputs], torch.full_like(x[..., :1], torch.nan)], dim=-1)
    return columns[..., list(network.layout.positions)]


def _count(run: RollOut, k: int, truth: Tensor, free: Tensor, forced: Tensor, held: Tensor) -> None:
    scored = ~truth.isnan()
    run.count[k] += scored.sum(0).cpu().numpy()
    for sums, guess in ((run.free, free), (run.forced, forced), (run.last, held)):
        errors = torch.where(scored, (guess - truth).double().square(), 0.0)
        sums[k] += errors.sum(0).cpu().numpy()


def _compare(run: RollOut, k: int, truth: Tensor, free: Tensor, before: Tensor) -> None:
    there = ~truth.isnan() & ~before.isnan()
    for sums, guess in ((run.seasonal, before), (run.free_there, free)):
        sums[k] += torch.where(there, (guess - truth).double().square(), 0.0).sum(0).cpu().numpy()
