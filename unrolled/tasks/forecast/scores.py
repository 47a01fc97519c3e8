"""Errors of forecasts in the units of the data, beside those of naive forecasts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from unrolled.data.batching.ragged_windows import RaggedWindows
from unrolled.data.signals.scaling import ColumnScaling
from unrolled.errors import UserError
from unrolled.model import Model
from unrolled.models.forecaster import Forecaster
from unrolled.tasks.forecast.layout import frame_of

SUMS = ("count", "squared", "absolute", "last", "mean", "loss", "nats", "compared", "seasonal", "squared_there")


class Tally:
    """Sums over scored numbers, by horizon and target; parts can come in any order and any size."""

    def __init__(self, frame: ColumnScaling, network: Forecaster) -> None:
        self.frame, self.network = frame, network
        shape = (len(frame.roles.horizons), len(frame.roles.targets))
        self._sums = {name: np.zeros(shape) for name in SUMS}
        self._steps = 0
        self._has_nats = False

    def add(self, estimate: Tensor, inputs: Tensor, targets: Tensor, naive: Tensor | None = None) -> None:
        """Estimates (B, T, horizons, K, P) for features (B, T, F) and targets (B, T, horizons, K), NaN: not scored.

        `naive` are forecasts that repeat the last period, NaN where there was none yet.
        """
        network, output = self.network, self.network.output
        scored = ~targets.isnan()
        steps = scored.any(-1).any(-1)
        self._steps += int(scored.any(-1).sum())
        # (N, …): those of them that have something to score
        naive = None if naive is None else naive[steps]
        estimate, inputs, targets, scored = (part[steps] for part in (estimate, inputs, targets, scored))
        truth = targets.nan_to_num()
        mean = torch.from_numpy(self.frame.scaled_mean()).to(truth)
        positions = [p if p >= 0 else network.layout.inputs for p in self.frame.positions]
        columns = torch.cat([inputs[..., : network.layout.inputs], torch.full_like(inputs[..., :1], torch.nan)], dim=-1)
        last = columns[..., positions].unsqueeze(-2).expand_as(truth)  # (N, horizons, K)
        error = output.point(estimate) - truth
        parts = {
            "count": torch.ones_like(truth),
            "squared": error.square(),
            "absolute": error.abs(),
            "last": (last - truth).square(),
            "mean": (mean - truth).square(),
            "loss": output.loss(estimate, truth, network.scale),
        }
        nats = output.nll(estimate, truth, network.scale)
        if nats is not None:
            parts["nats"], self._has_nats = nats, True
        if naive is not None:
            there = ~naive.isnan()
            parts["compared"] = there.to(truth.dtype)
            parts["seasonal"] = torch.where(there, naive - truth, 0.0).square()
            parts["squared_there"] = torch.where(there, error, 0.0).square()
        every = bool(scored.all())
        for name, values in parts.items():
            counted = values if every else torch.where(scored, values, 0.0)
            self._sums[name] += counted.sum(dim=0, dtype=torch.float64).cpu().numpy()

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
            jacobian = 0.0 if self.network.output.per_step else float((sums["count"] * np.log(unit)).sum())
            scores["nll"] = (float(sums["nats"].sum()) + jacobian) / self._steps
        for name in ("last", "mean"):
            if np.isfinite(sums[name]).all():
                scores[f"{name}_mse"] = float((sums[name] * unit**2).sum() / count)
        if compared := float(sums["compared"].sum()):
            scores["seasonal_mse"] = float((sums["seasonal"] * unit**2).sum() / compared)
        scores |= _skill(float(sums["squared"].sum()), [float(sums[n].sum()) for n in ("last", "mean")])
        scores |= _seasonal({name: float(values.sum()) for name, values in sums.items()})
        scores["loss"] = float(sums["loss"].sum() / (self._steps if self.network.output.per_step else count))
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


def tallied(model: Model, batches: RaggedWindows) -> Tally:
    """Errors over all batches, the state carried from one to the next."""
    network = model.network
    assert isinstance(network, Forecaster)
    tally, state = Tally(frame_of(model), network), None
    for index in range(len(batches)):
        batch = batches[index].to(model.device)
        estimate, state = network(batch.inputs, state, lengths=batch.lengths, resets=batch.resets)
        tally.add(estimate.float(), batch.inputs, batch.targets, batch.more.get("naive"))
    return tally


def _skill(error: float, naive: Sequence[float]) -> dict[str, float]:
    """1 − error / the smallest of the naive ones: 1 is perfect, 0 no better; nothing where a naive one is perfect."""
    best = min((n for n in naive if np.isfinite(n)), default=0.0)
    return {"skill": 1 - error / best} if best > 0 else {}


def _seasonal(sums: Mapping[str, float]) -> dict[str, float]:
    skill = _skill(sums["squared_there"], [sums["seasonal"]]) if sums["compared"] else {}
    return {f"seasonal_{name}": value for name, value in skill.items()}
