"""Windows of series in which a forecaster reads its own predictions."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from unrolled.data import Batch
from unrolled.data.signals.scaling import ColumnScaling
from unrolled.errors import UserError
from unrolled.models.forecaster import Forecaster
from unrolled.models.outputs import Output
from unrolled.tasks.contract import Training
from unrolled.tasks.forecast.config import ForecastConfig
from unrolled.tasks.forecast.layout import output_of
from unrolled.tasks.forecast.stream import check_roll_out
from unrolled.training.forcing import own_places

PER_WINDOW = ("variational_dropout", "dropconnect")  # masks that are sampled once for all steps of a window


def check_own_rows(config: ForecastConfig, frame: ColumnScaling) -> None:
    """Raise if the model cannot read its own predictions in training as the config says."""
    settings = config.train
    if settings.teacher_forcing == "always":
        return
    check_roll_out(frame)
    loss = config.model.loss
    if settings.pick == "sample" and not _is_distribution(output_of(config.model, frame)):
        raise UserError(
            f"train.pick=sample, but the model predicts no distribution{f' (model.loss={loss})' if loss else ''}.",
            "Use train.pick=point, or model.loss=gaussian or bernoulli.",
        )
    for name in PER_WINDOW:
        if settings.feedback == "steps" and getattr(config.model, name):
            raise UserError(
                f"train.feedback=steps runs a step at a time, and model.{name} has one mask for all steps of a window.",
                f"Use model.{name}=0, or train.feedback=parallel.",
            )


def estimated(network: Forecaster, batch: Batch, state: Any, training: Training | None = None) -> tuple[Tensor, Any]:
    """Estimates (B, T, horizons, K, P) and the state; in training some rows are the model's own predictions.

    `train.teacher_forcing` says how many, `train.feedback` where they come from. The first row of a window is true.
    """
    share = 0.0 if training is None else training.own_share
    if training is None or share == 0 or batch.inputs.shape[1] < 2:
        return network(batch.inputs, state, lengths=batch.lengths, resets=batch.resets)  # type: ignore[no-any-return]
    pick = training.settings.pick
    if training.settings.feedback == "steps":
        return step_by_step(network, batch, state, own_places(batch.mask, share, batch.resets), pick)
    batch = _with_parallel_guesses(network, batch, state, share, pick)
    return network(batch.inputs, state, lengths=batch.lengths, resets=batch.resets)  # type: ignore[no-any-return]


def step_by_step(network: Forecaster, batch: Batch, state: Any, own: Tensor, pick: str) -> tuple[Tensor, Any]:
    """A run in which every row at `own` (B, T) is the network's prediction of it, with gradients through the rows.

    Only these rows need a call of their own: the true rows after one of them are read together with it.
    """
    x, estimates = batch.inputs, list[Tensor]()
    firsts = own.any(0).nonzero().flatten().tolist()
    for first, end in pairwise([0, *firsts, x.shape[1]]):
        piece = batch.steps(first, end)
        rows = piece.inputs
        if estimates:
            guess = guessed(network.output, estimates[-1][:, -1, network.layout.next], pick)
            mixed = torch.where(own[:, first, None], network.with_guess(x[:, first], guess), x[:, first])
            rows = torch.cat([mixed[:, None], rows[:, 1:]], dim=1)
        resets = piece.resets if first == 0 or batch.resets is None or batch.resets.dim() == 2 else None
        estimate, state = network(rows, state, lengths=piece.lengths, resets=resets)
        estimates.append(estimate)
    return torch.cat(estimates, dim=1), state


def guessed(output: Output, estimate: Tensor, pick: str) -> Tensor:
    """The numbers (…, K) that are read in the place of the true ones: a point, or a sample of the distribution."""
    if pick == "point":
        point: Tensor = output.guess(estimate)
        return point
    drawn: Tensor | None = output.draw(estimate)
    assert drawn is not None
    return drawn


def _with_parallel_guesses(network: Forecaster, batch: Batch, state: Any, share: float, pick: str) -> Batch:
    """Rows that are all predicted at once by one pass over the true rows, as for text."""
    with torch.no_grad():
        estimate, _ = network(batch.inputs, state, lengths=batch.lengths, resets=batch.resets)
    guess = guessed(network.output, estimate[:, :-1, network.layout.next], pick)  # of the inputs from the second on
    own = torch.rand(batch.inputs.shape[0], batch.inputs.shape[1] - 1, 1, device=batch.inputs.device) < share
    rest = torch.where(own, network.with_guess(batch.inputs[:, 1:], guess), batch.inputs[:, 1:])
    return replace(batch, inputs=torch.cat([batch.inputs[:, :1], rest], dim=1))


def _is_distribution(output: Output) -> bool:
    return type(output).draw is not Output.draw
