"""Roll-outs on a series whose end is known: how much worse a model is when it reads its own predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data.batching.ragged_windows import FrameSequence
from unrolled.data.batching.sharing import added_up, own_part
from unrolled.data.readers.series.read_series import Numbers
from unrolled.data.signals.scaling import ColumnScaling
from unrolled.search.arrays import Array, arrays_for

if TYPE_CHECKING:
    from unrolled.model import Model

Frames = NDArray[np.float32]
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

    def add_up(self) -> None:
        """Add the roll-outs of the other processes of an evaluation."""
        self.origins = int(added_up(np.array([float(self.origins)]))[0])
        for name in ("count", "free", "forced", "last", "seasonal", "free_there"):
            setattr(self, name, added_up(getattr(self, name)))

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


def free_run(model: Model, examples: Sequence[FrameSequence], steps: int) -> RollOut:
    """Roll-outs of `steps` steps, or as many as the longest scored part has, from origins spread evenly over those.

    At each step the targets that are read are the model's own predictions; other inputs are the true ones.
    """
    network: Any = model.network
    steps = max(1, min(steps, max(_scored(example, network.layout.next)[1] for example in examples)))
    run = RollOut(model.assets, steps)
    each = max(1, MOST_ORIGINS // len(examples))
    some = examples[:MOST_ORIGINS]
    for example in (some[index] for index in own_part(len(some))):
        origins = _origins(example, network.layout.next, steps, each)
        if len(origins):
            _roll(run, network, arrays_for(network), example, origins)
    run.add_up()
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


def _roll(run: RollOut, network: Any, arrays: Any, example: FrameSequence, origins: NDArray[np.int64]) -> None:
    layout, output, inputs = network.layout, network.output, example.inputs
    forced, states, ahead = _teacher_forced(network, arrays, inputs, origins)
    state = tuple(arrays.cat(parts, 0) for parts in zip(*states, strict=True))
    estimate = arrays.stack(ahead)  # (N, K, P): of the row after each origin
    held = layout.last_values(inputs[origins])
    for k in range(run.steps):
        truth, point = example.targets[origins + k, layout.next], arrays.host(output.point(estimate))  # (N, K)
        _count(run, k, truth, point, forced[origins + k], held)
        if run.frame.period is not None:
            back = origins + 1 + k - run.frame.period * (1 + k // run.frame.period)
            before = layout.last_values(inputs[back.clip(min=0)])
            before[back < run.frame.start_row] = np.nan
            _compare(run, k, truth, point, before)
        if k + 1 < run.steps:
            x = layout.with_guess(arrays.moved(inputs[origins + k + 1]), output.guess(estimate))
            after, state = network(x[:, None], state)
            estimate = after[:, 0, layout.next]
    run.origins += len(origins)


def _teacher_forced(
    network: Any, arrays: Any, inputs: Frames, origins: NDArray[np.int64]
) -> tuple[Frames, list[Any], list[Array]]:
    """Next-step predictions (T, K) on the true past; states and estimates at the origins."""
    points, states, ahead, state, begin = [], [], [], None, 0
    for end in [*(origins + 1).tolist(), len(inputs)]:
        if end == begin:
            continue
        estimate, state = network(arrays.moved(inputs[None, begin:end]), state)
        estimate = estimate[0, :, network.layout.next]  # (T, K, P)
        points.append(arrays.host(network.output.point(estimate)))
        states.append(state)
        ahead.append(estimate[-1])
        begin = end
    return np.concatenate(points), states[: len(origins)], ahead[: len(origins)]


def _count(run: RollOut, k: int, truth: Frames, free: Frames, forced: Frames, held: Frames) -> None:
    scored = ~np.isnan(truth)
    run.count[k] += scored.sum(0)
    for sums, guess in ((run.free, free), (run.forced, forced), (run.last, held)):
        sums[k] += np.where(scored, np.square((guess - truth).astype(np.float64)), 0.0).sum(0)


def _compare(run: RollOut, k: int, truth: Frames, free: Frames, before: Frames) -> None:
    there = ~np.isnan(truth) & ~np.isnan(before)
    for sums, guess in ((run.seasonal, before), (run.free_there, free)):
        sums[k] += np.where(there, np.square((guess - truth).astype(np.float64)), 0.0).sum(0)
