"""A forecaster laid open on a series."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from unrolled.data.frame import Frame
from unrolled.data.series import Numbers
from unrolled.errors import UserError
from unrolled.models.forecaster import Forecaster
from unrolled.see import ModelTrace, Part, Probe, check_memory
from unrolled.see.options import HIDE
from unrolled.tasks.forecast_about import ADDS_NOTHING, adds_nothing

OPTIONS = (HIDE,)


def trace_rows(network: Forecaster, frame: Frame, rows: Numbers, hide: Sequence[int]) -> ModelTrace:
    """Every gate and state while rows are read, and the loss of each row's forecast.

    The loss is that of training where the rows say what came; of a model whose targets are no inputs, it is the
    forecast itself, in scaled units: its gradient then says what the forecast hangs on.
    """
    if not len(rows):
        raise UserError("There is no row to trace.", "Give at least one.")
    network.eval()
    check_memory(len(rows), network, "rows")
    device = network.scale.device
    features, _ = frame.inputs(rows)
    names = [str(number) for number in range(len(rows))]
    if frame.start_row:
        features, names = np.concatenate([frame.start_features(), features]), ["start", *names]
    probe = Probe(names, hide)
    estimate, trace = network.trace(torch.from_numpy(features)[None].to(device), probe)
    losses = _losses(network, frame, rows, estimate[0].float())
    said = frame.unscaled(network.output.point(estimate[0, -1].detach()).cpu().numpy()).ravel()
    shown = [f"{name} {value:.4g}" for name, value in zip(frame.roles.outputs, said.tolist(), strict=True)]
    return ModelTrace(
        "forecast",
        ("then " if not frame.roles.aligned else "") + ", ".join(shown[:8]) + (", …" if len(shown) > 8 else ""),
        names,
        losses,
        (Part("", names, trace),),
        {"input": probe},
        aligned="",
        reasons={
            "gates": "A vanilla RNN has no gates.",
            "attention": "A recurrent forecaster has no attention.",
            "beams": "Numbers are not searched for: there is no beam.",
        },
        notes=(ADDS_NOTHING,) if adds_nothing(network) else (),
    )


def _losses(network: Forecaster, frame: Frame, rows: Numbers, estimate: Tensor) -> Tensor:
    """(T,): of each step, over all horizons and targets."""
    wanted = torch.full((len(estimate), *network.layout.outputs), torch.nan, device=estimate.device)
    known = [(k, place) for k, place in enumerate(frame.positions) if place >= 0]
    first = len(estimate) - len(rows)  # a start row stands before the rows
    width = len(frame.roles.inputs)
    scaled = (rows - np.array(frame.center[:width])) / np.array(frame.scale[:width])
    truth = torch.from_numpy(scaled).float().to(estimate.device)
    for index, horizon in enumerate(frame.roles.horizons):
        for k, place in known:
            coming = truth[max(0, horizon - first) :, place]
            begin = max(0, first - horizon)
            wanted[begin : begin + len(coming), index, k] = coming
    scored = ~wanted.isnan()
    if not bool(scored.any()):
        return network.output.point(estimate).sum((-1, -2))
    losses = network.output.loss(estimate, wanted.nan_to_num(), network.scale)
    return torch.where(scored, losses, 0.0).sum((-1, -2))
