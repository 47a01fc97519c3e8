"""Errors of forecasts in the units of the data, beside those of naive forecasts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data.batching.ragged_windows import FrameSequence, RaggedWindows
from unrolled.data.batching.sharing import added_up, own_lanes
from unrolled.data.signals.scaling import ColumnScaling, SeriesPart
from unrolled.errors import UserError
from unrolled.models.forecaster_sizes import ForecasterSizes
from unrolled.models.outputs import Output
from unrolled.search.arrays import Array, arrays_of
from unrolled.tasks.forecast.layout import frame_of, steps_of
from unrolled.tasks.forecast.rollout import free_run
from unrolled.tasks.forecast.rows import keys_of
from unrolled.tasks.forecast.series import arrange, read_like, usable
from unrolled.tasks.forecast.stream import can_roll_out

if TYPE_CHECKING:
    from unrolled.model import Model
    from unrolled.models.forecaster import ForecasterSettings

Frames = NDArray[np.float32]
EVALUATED_AT_ONCE = 64  # series side by side
EVALUATED_WINDOW = 1000  # steps of each at once

SUMS = ("count", "squared", "absolute", "last", "mean", "loss", "nats", "compared", "seasonal", "squared_there")


class Tally:
    """Sums over scored numbers, by horizon and target; parts can come in any order and any size."""

    def __init__(self, frame: ColumnScaling, layout: ForecasterSizes, output: Output) -> None:
        self.frame, self.layout, self.output = frame, layout, output
        shape = (len(frame.roles.horizons), len(frame.roles.targets))
        self._sums = {name: np.zeros(shape) for name in SUMS}
        self._steps = 0
        self._has_nats = False

    def add(
        self,
        estimate: Frames,
        inputs: Frames,
        targets: Frames,
        naive: Frames | None = None,
        losses: Frames | None = None,
    ) -> None:
        """Estimates (B, T, horizons, K, P) for features (B, T, F) and targets (B, T, horizons, K), NaN: not scored.

        `naive` are forecasts that repeat the last period, NaN where there was none yet; `losses` (B, T, horizons, K)
        those of training.
        """
        output = self.output
        scored = ~np.isnan(targets)
        steps = scored.any(-1).any(-1)
        self._steps += int(scored.any(-1).sum())
        # (N, …): those of them that have something to score
        naive, losses = (None if part is None else part[steps] for part in (naive, losses))
        estimate, inputs, targets, scored = (part[steps] for part in (estimate, inputs, targets, scored))
        truth = np.nan_to_num(targets)
        last = np.broadcast_to(self.layout.last_values(inputs)[..., None, :], truth.shape)  # (N, horizons, K)
        error = output.point(estimate) - truth
        parts = {
            "count": np.ones_like(truth),
            "squared": np.square(error),
            "absolute": np.abs(error),
            "last": np.square(last - truth),
            "mean": np.square(self.frame.scaled_mean().astype(truth.dtype) - truth),
        }
        if losses is not None:
            parts["loss"] = losses
        nats = output.nll(estimate, truth)
        if nats is not None:
            parts["nats"], self._has_nats = nats, True
        if naive is not None:
            there = ~np.isnan(naive)
            parts["compared"] = there.astype(truth.dtype)
            parts["seasonal"] = np.square(np.where(there, naive - truth, 0.0))
            parts["squared_there"] = np.square(np.where(there, error, 0.0))
        every = bool(scored.all())
        for name, values in parts.items():
            counted = values if every else np.where(scored, values, 0.0)
            self._sums[name] += counted.sum(axis=0, dtype=np.float64)

    def add_up(self) -> None:
        """Add what the other processes of an evaluation found in their rows."""
        self._sums = {name: added_up(values) for name, values in self._sums.items()}
        self._steps = int(added_up(np.array([float(self._steps)]))[0])

    def scores(self) -> dict[str, float]:
        """`mse` and `mae` are means over all scored numbers, in the data's own units; `nll` is nats per step, summed
        over columns. `skill` is 1 − mse / mse of the better of two forecasts without a model, the last value and the
        mean of the training part, with each column in its scale; `seasonal_skill` is against the value one period
        before, over those steps that have one.
        """
        sums, count = self._sums, self._sums["count"].sum()
        if not count:
            raise UserError("Nothing can be scored: every target is missing.", "Give data with values to predict.")
        unit = self.frame.target_scale()
        scores = {
            "mse": float((sums["squared"] * unit**2).sum() / count),
            "mae": float((sums["absolute"] * unit).sum() / count),
        }
        if self._has_nats:
            jacobian = 0.0 if self.output.per_step else float((sums["count"] * np.log(unit)).sum())
            scores["nll"] = (float(sums["nats"].sum()) + jacobian) / self._steps
        for name in ("last", "mean"):
            if np.isfinite(sums[name]).all():
                scores[f"{name}_mse"] = float((sums[name] * unit**2).sum() / count)
        if compared := float(sums["compared"].sum()):
            scores["seasonal_mse"] = float((sums["seasonal"] * unit**2).sum() / compared)
        scores |= _skill(float(sums["squared"].sum()), [float(sums[n].sum()) for n in ("last", "mean")])
        scores |= _seasonal({name: float(values.sum()) for name, values in sums.items()})
        scores["loss"] = float(sums["loss"].sum() / (self._steps if self.output.per_step else count))
        scores["steps"] = self._steps
        return scores

    def table(self) -> dict[str, dict[str, float]]:
        """mse, mae and skills of each target at each horizon."""
        roles, unit, rows = self.frame.roles, self.frame.target_scale(), {}
        for h, horizon in enumerate(roles.horizons):
            for k, target in enumerate(roles.targets):
                count = self._sums["count"][h, k]
                if not count:
                    continue
                name = roles.output(target, horizon)
                cell = {key: float(self._sums[key][h, k]) for key in SUMS}
                rows[name] = {
                    "mse": cell["squared"] * unit[k] ** 2 / count,
                    "mae": cell["absolute"] * unit[k] / count,
                    **_skill(cell["squared"], [cell["last"], cell["mean"]]),
                    **_seasonal(cell),
                }
        return rows


def evaluate_file(model: Model, path: str | Path) -> dict[str, Any]:
    """Every step scored once with all of its past; then roll-outs, if the model can make them."""
    if not isinstance(path, (str, Path)):
        raise UserError(
            f"A forecast is scored on a file, got {type(path).__name__}.", "Give the path of a table or .npz."
        )
    frame, config = frame_of(model), _config_of(model)
    sheet = read_like(path, frame.roles, keys_of(model), missing=frame.missing)
    series = usable(arrange(sheet, frame.roles), frame.roles, frame.start_row)
    examples = steps_of(config.model, frame, [SeriesPart(one) for one in series])
    with model.answering():
        tally = tallied(model, evaluated(config.model, examples))
        scores: dict[str, Any] = {**tally.scores(), "series": len(series)}
        del scores["loss"]
        free = free_run(model, examples, config.train.rollout_steps) if can_roll_out(frame) else None
    if free is not None and free.origins:
        scores |= free.scores()
    scores["columns"] = tally.table()
    return scores


def evaluated(settings: ForecasterSettings, sequences: Sequence[FrameSequence]) -> RaggedWindows:
    """Series in windows, the state carried; as a whole where they are read from both ends."""
    window = max(map(len, sequences)) if settings.bidirectional else EVALUATED_WINDOW
    return RaggedWindows(sequences, rows=EVALUATED_AT_ONCE, window=window)


def tallied(model: Model, batches: RaggedWindows, losses: Callable[[Array, Array], Array] | None = None) -> Tally:
    """Errors over all batches, the state carried from one to the next.

    `losses` gives those of training (B, T, horizons, K) for estimates and targets, of which some are NaN.
    """
    network: Any = model.network
    tally, state = Tally(frame_of(model), network.layout, network.output), None
    with own_lanes(batches) as shared:
        for index in range(len(batches)):
            given = batches.arrays(index)
            batch = model.placed(given)
            estimate, state = network(batch.inputs, state, lengths=batch.lengths, resets=batch.resets)
            arrays = arrays_of(estimate)
            estimate = arrays.float(estimate)
            lost = None if losses is None else arrays.host(losses(estimate, batch.targets))
            tally.add(arrays.host(estimate), given.inputs, given.targets, given.more.get("naive"), lost)
    if shared:
        tally.add_up()
    return tally


def _config_of(model: Model) -> Any:
    return model.config


def _skill(error: float, naive: Sequence[float]) -> dict[str, float]:
    """1 − error / the smallest of the naive ones: 1 is perfect, 0 no better; nothing where a naive one is perfect."""
    best = min((n for n in naive if np.isfinite(n)), default=0.0)
    return {"skill": 1 - error / best} if best > 0 else {}


def _seasonal(sums: Mapping[str, float]) -> dict[str, float]:
    skill = _skill(sums["squared_there"], [sums["seasonal"]]) if sums["compared"] else {}
    return {f"seasonal_{name}": value for name, value in skill.items()}
