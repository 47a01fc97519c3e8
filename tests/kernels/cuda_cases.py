"""Jobs for the cuda engine, drawn for a case, and how far 16-bit results are from `reference` in float64."""

from __future__ import annotations

import math
import zlib
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from unrolled.cells import BuiltIn, GRUCell, LSTMCell, RNNCell
from unrolled.kernels import ScanJob, make_job
from unrolled.kernels.recurrence import reference

Case = dict[str, Any]

CELLS = ("rnn", "relu", "lstm", "lstm_current", "lstm_previous", "lstm_norm", "gru", "gru_before")
GATES = {"rnn": 1, "relu": 1, "gru": 3, "gru_before": 3}


def make(case: Case, device: str = "cpu") -> ScanJob:
    """A job whose numbers are rounded to the case's dtype."""
    cell, batch, steps, hidden = case["cell"], case["batch"], case["steps"], case["hidden"]
    drawn = torch.Generator().manual_seed(zlib.crc32(repr(case).encode()))
    gates, features = GATES.get(cell, 4), 6

    def normal(*shape: int, scale: float = 0.3) -> Tensor:
        numbers = torch.randn(shape, generator=drawn) * scale
        return numbers.to(case["dtype"]).to(device)

    given: dict[str, Any] = {
        "weight_ih": normal(gates * hidden, features),
        "weight_hh": normal(gates * hidden, hidden, scale=0.5 / hidden**0.5),
    }
    if case["bias"]:
        given |= {"bias_ih": normal(gates * hidden), "bias_hh": normal(gates * hidden)}
    if cell == "relu":
        given["activation"] = torch.relu
        # the sums stay away from 0, where the slope jumps and rounding decides: x has more to say than h
        sized = (given["weight_ih"].abs() + 0.2).to(case["dtype"])
        given |= {"weight_ih": sized * normal(hidden, 1).sign(), "weight_hh": given["weight_hh"] / 2}
    if cell.startswith("gru"):
        given["reset_after"] = cell == "gru"
    if cell == "lstm_norm":
        gains = {"norm_ih": 4 * hidden, "norm_hh": 4 * hidden, "norm_c": hidden}
        given |= {name: (normal(size) + 1).to(case["dtype"]) for name, size in gains.items()}
        given["norm_c_bias"] = normal(hidden)
    elif cell.startswith("lstm_"):
        given |= {"weight_peephole": normal(3, hidden), "peephole_output": cell.removeprefix("lstm_")}
    kind = LSTMCell if cell.startswith("lstm") else GRUCell if cell.startswith("gru") else RNNCell
    made = kind(**given)
    x = normal(steps, batch, features, scale=1.0).transpose(0, 1)
    x = x.abs() + 1 if cell == "relu" else x
    x = x if case["time_major"] else x.contiguous()
    state = tuple(normal(batch, hidden) for _ in made.state_names)
    lengths = torch.randint(0, steps + 1, (batch,), generator=drawn).to(device) if case["lengths"] else None
    if lengths is not None:
        for row, length in enumerate(lengths.tolist()):
            x[row, length:] = torch.nan
    resets = (torch.rand(batch, steps, generator=drawn) < 0.3).to(device) if case["resets"] else None
    reset_state = tuple(normal(batch, hidden) for _ in state) if case["resets"] == "learned" else None
    return make_job(made, x, state, lengths, resets, reset_state, None, case["reverse"])


def leaves(job: ScanJob) -> dict[str, Tensor]:
    """Everything that has a gradient, by name."""
    assert isinstance(job.cell, BuiltIn)
    weights = {field.name: getattr(job.cell, field.name) for field in fields(job.cell)}
    found = {name: w for name, w in weights.items() if isinstance(w, Tensor)}
    found["x"] = job.x
    found |= {f"{name}_0": s for name, s in zip(job.cell.state_names, job.state, strict=True)}
    if job.reset_state:
        found |= {f"reset_{name}": s for name, s in zip(job.cell.state_names, job.reset_state, strict=True)}
    return found


def cast(job: ScanJob, dtype: torch.dtype) -> ScanJob:
    """The same job in another dtype, its tensors leaves of a new graph."""

    def new(value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        return value.detach().to(dtype, memory_format=torch.preserve_format, copy=True).requires_grad_()

    assert isinstance(job.cell, BuiltIn)
    return replace(
        job,
        cell=replace(job.cell, **{f.name: new(getattr(job.cell, f.name)) for f in fields(job.cell)}),
        x=new(job.x),
        state=tuple(map(new, job.state)),
        reset_state=tuple(map(new, job.reset_state)) if job.reset_state else None,
    )


def results(job: ScanJob, engine: Any) -> dict[str, Tensor]:
    """Outputs, final states and gradients of a loss that weighs all of them differently, in numbers of few bits.

    The longer and wider the batch, the smaller the weights: gradients of biases and weights must not overflow float16.
    """
    output, state = engine.run(job)
    unbounded = getattr(job.cell, "activation", None) is torch.relu
    scale = 2.0 ** -round(math.log2(job.x.shape[0] * job.x.shape[1]) / 4 + (5 if unbounded else 3))
    loss = output.new_zeros((), dtype=torch.float64)
    for value in (output, *state):
        weights = torch.arange(value.numel(), device=value.device) % 13 * scale
        loss = loss + (value.double() * weights.view(value.shape)).sum()
    wanted = leaves(job)
    gradients = torch.autograd.grad(loss, list(wanted.values()), allow_unused=True)
    found = {"output": output} | {f"final {i}": s for i, s in enumerate(state)}
    for (name, leaf), gradient in zip(wanted.items(), gradients, strict=True):
        found[f"gradient of {name}"] = torch.zeros_like(leaf) if gradient is None else gradient
    return {name: value.detach() for name, value in found.items()}


def exact(job: ScanJob) -> dict[str, Tensor]:
    """The same from `reference` in float64."""
    return results(cast(job, torch.float64), reference)


def error(found: Tensor, expected: Tensor) -> float:
    """‖found - expected‖ / ‖expected‖; of a vanishing number, ‖found‖."""
    size = float(expected.double().norm())
    return float((found.double() - expected.double()).norm()) / (size or 1.0)
