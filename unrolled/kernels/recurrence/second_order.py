"""Second derivatives of the native engine: a backward pass that is itself differentiated runs on `reference`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from unrolled.cells import GRUCell, LSTMCell, RNNCell
from unrolled.kernels.recurrence import reference
from unrolled.kernels.recurrence.native_buffers import GRU_RESET_AFTER, GRU_RESET_BEFORE, LSTM, RNN_RELU
from unrolled.kernels.recurrence.scan_job import ScanJob

WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "norm_ih", "norm_hh", "hidden_mask")
LSTM_WEIGHTS = ("weight_hr", "weight_peephole", "norm_c", "norm_c_bias")


def gradients(
    run: Callable[[Sequence[Tensor | None]], Sequence[Tensor]],
    inputs: Sequence[Tensor | None],
    needed: Sequence[bool],
    d_outputs: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """The gradients of `inputs` through `run`, each with a graph of its own; None where it is not needed."""
    # one input may depend on another: what flows through an alias is the direct part alone
    aliases = [t.view_as(t) if need and t is not None else t for t, need in zip(inputs, needed, strict=True)]
    outputs = run(aliases)
    pairs = [(o, d) for o, d in zip(outputs, d_outputs, strict=False) if d is not None and o.requires_grad]
    wanted = [alias for alias, need in zip(aliases, needed, strict=True) if need and alias is not None]
    found = iter(
        torch.autograd.grad([o for o, _ in pairs], wanted, [d for _, d in pairs], create_graph=True, allow_unused=True)
        if pairs
        else [None] * len(wanted)
    )
    return [next(found) if need and alias is not None else None for alias, need in zip(aliases, needed, strict=True)]


def run_reference(given: Mapping[str, Any]) -> tuple[Tensor, ...]:
    """Output and final states of the recurrence that the native engine's arguments, by name, describe."""
    lstm = given["kind"] == LSTM
    state = (given["h_0"], given["c_0"]) if lstm else (given["h_0"],)
    reset = (given["reset_h"], given["reset_c"]) if lstm else (given["reset_h"],)
    keep = tuple(given[f"keep_{n}"] if given[f"keep_{n}"] is not None else given[f"keep_rate_{n}"] for n in "hc")
    keep = keep[: len(state)]
    job = ScanJob(
        _cell(given),
        given["x"],
        state,
        given["lengths"],
        given["resets"],
        None if given["reset_h"] is None else reset,
        keep if any(isinstance(k, Tensor) or k for k in keep) else None,
        given["reverse"],
    )
    with torch.autocast("cpu", enabled=False):
        output, final = reference.run(job)
    return output, *final


def _cell(given: Mapping[str, Any]) -> RNNCell | LSTMCell | GRUCell:
    kind, weights = given["kind"], {name: given[name] for name in WEIGHTS}
    if kind == LSTM:
        weights |= {name: given[name] for name in LSTM_WEIGHTS}
        return LSTMCell(**weights, peephole_output="previous" if given["peephole_previous"] else "current")
    if kind in (GRU_RESET_AFTER, GRU_RESET_BEFORE):
        return GRUCell(**weights, reset_after=kind == GRU_RESET_AFTER)
    return RNNCell(**weights, activation=torch.relu if kind == RNN_RELU else torch.tanh)
