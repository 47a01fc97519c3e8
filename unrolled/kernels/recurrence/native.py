"""The `native` engine: the built-in cells in C++ on a CPU, forward and hand-written backward (docs/native.md)."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from unrolled.cells import BuiltIn, GRUCell, LSTMCell, RNNCell, ScanTrace, State
from unrolled.kernels.recurrence import native_buffers as buffers
from unrolled.kernels.recurrence import native_ops as ops
from unrolled.kernels.recurrence import torch_engine
from unrolled.kernels.recurrence.scan_job import ScanJob

DESCRIPTION = (
    f"C++ on a CPU, {ops.ISA} kernels; float32, every option of the built-in cells; second derivatives by `reference`"
)
TAKES_TENSORS = ops.TAKES_TENSORS


def about() -> str:
    """What was built and what of it runs here, in a line."""
    return f"built; {ops.ISA} kernels (of {', '.join(ops.ISAS)}), threads: {ops.THREADING}"


AUTOCAST = (torch.float32, torch.bfloat16, torch.float16)


def refuses(job: ScanJob) -> str | None:
    """What the job asks for that this engine does not compute, or None."""
    cell, x = job.cell, job.x
    if type(cell) not in (RNNCell, LSTMCell, GRUCell):
        return f"it has no cell {type(cell).__name__}"
    assert isinstance(cell, BuiltIn)
    if x.device.type != "cpu":
        return f"it runs on a CPU, the input is on {x.device}"
    accepted = AUTOCAST if torch.is_autocast_enabled("cpu") else (torch.float32,)
    for tensor in _tensors(job):
        if tensor.dtype not in accepted:
            return f"it computes in float32, got {tensor.dtype}"
    if x.shape[0] == 0:
        return "the batch is empty"
    if not torch.compiler.is_compiling():
        if transformed():
            return "it has no torch.func transforms and no forward-mode derivatives"
        if torch._C._is_tracing():
            return "torch.jit.trace records torch's own operators alone"
    masks = [cell.hidden_mask, *(job.keep or ())]
    if any(isinstance(mask, Tensor) and mask.requires_grad for mask in masks):
        return "it has no gradient for masks"
    return refuses_activations(cell)


def transformed() -> bool:
    """Whether torch.func or forward-mode differentiation is at work."""
    functorch = torch._C._functorch.peek_interpreter_stack() is not None
    return functorch or torch.autograd.forward_ad._current_level >= 0


def outdone(job: ScanJob) -> str | None:
    """Why `auto` should leave the job to torch, which computes it too and is faster; None where it is not.

    Measured on 1 and 2 cores with AVX-512. torch's LSTM is one call of a fused library whose products are close to what
    the processor can do: without gradients it is ahead on a single long sequence, and on three, since the products here
    take rows by twos. Its GRU and RNN are several calls a step, and ahead only where there are few steps. With lengths
    it packs the batch and loops over the steps of any cell, and is ahead nowhere.
    """
    cell = job.cell
    assert isinstance(cell, BuiltIn)
    if torch_engine.refuses(job) is not None:
        return None
    if torch.compiler._is_exporting_flag:  # is_exporting() is True inside of torch 2.11's torch.compile as well
        return "an exported program is to hold torch's own operators"
    if torch.is_autocast_enabled("cpu") and job.lengths is None:
        return "torch is faster in autocast's precision"
    if ops.ISA == "plain" and platform.machine() in ("x86_64", "AMD64"):
        return "torch is faster than its plain kernels"
    if job.lengths is not None:
        return None
    batch, steps = job.x.shape[:2]
    if isinstance(cell, LSTMCell):
        if not torch.is_grad_enabled() and batch in (1, 3) and steps >= _LONG and cell.hidden_size >= _WIDE:
            return "torch is faster without gradients on so few sequences"
    elif steps < _STEPS:
        return "torch is faster on so few steps"
    return None


_LONG, _WIDE, _STEPS = 20, 128, 5


def _tensors(job: ScanJob) -> Iterator[Tensor]:
    cell = job.cell
    assert isinstance(cell, BuiltIn)
    yield from (job.x, cell.weight_ih, cell.weight_hh, *job.state)
    yield from (keep for keep in job.keep or () if isinstance(keep, Tensor))


def refuses_activations(cell: BuiltIn) -> str | None:
    """Why the kernels cannot run a cell, if it has other activations than theirs."""
    if isinstance(cell, RNNCell):
        usual = cell.activation in (torch.tanh, torch.relu)
    elif isinstance(cell, LSTMCell):
        usual = cell.activation is torch.tanh and cell.output_activation is torch.tanh
        usual = usual and cell.gate_activation is torch.sigmoid
    else:
        assert isinstance(cell, GRUCell)
        usual = cell.activation is torch.tanh and cell.gate_activation is torch.sigmoid
    return None if usual else "it has the usual activations only: tanh and sigmoid, or relu for an RNN"


def run(job: ScanJob) -> tuple[Tensor, State]:
    """The outputs (B, T, P) and the final state.

    Under autocast the result is in its dtype. The work is done in float32, more exactly than asked for; but an LSTM's
    products are in bfloat16, if that is the dtype, on processors that have an instruction for them.
    """
    if torch.is_autocast_enabled("cpu"):
        kind = torch.get_autocast_dtype("cpu")
        with torch.autocast("cpu", enabled=False):
            output, state, _ = _run(in_float32(job), probes=(), traced=False, narrow=_narrow(job, kind))
        return output.to(kind), tuple(s.to(kind) for s in state)
    output, state, _ = _run(job, probes=(), traced=False, narrow=False)
    return output, state


def _narrow(job: ScanJob, autocast: torch.dtype) -> bool:
    """Whether products are to be in bfloat16."""
    cell, options = job.cell, ("weight_hr", "norm_hh", "norm_c")
    if autocast != torch.bfloat16 or not isinstance(cell, LSTMCell):
        return False
    return ops.NARROW and all(getattr(cell, name) is None for name in options)


def in_float32(job: Any) -> Any:
    """A job, or any part of it, with every number it holds in float32."""
    if isinstance(job, Tensor):
        return job.float() if job.is_floating_point() else job
    if isinstance(job, tuple):
        return tuple(map(in_float32, job))
    if is_dataclass(job) and not isinstance(job, type):
        return replace(job, **{field.name: in_float32(getattr(job, field.name)) for field in fields(job)})
    return job


def run_traced(job: ScanJob) -> tuple[Tensor, State, ScanTrace]:
    """The same numbers, and the gates and states that the backward pass keeps anyway."""
    if torch.is_autocast_enabled("cpu"):
        kind = torch.get_autocast_dtype("cpu")
        with torch.autocast("cpu", enabled=False):
            output, state, trace = _run_traced(in_float32(job), _narrow(job, kind))
        return output.to(kind), tuple(s.to(kind) for s in state), trace
    return _run_traced(job, narrow=False)


def _run_traced(job: ScanJob, narrow: bool) -> tuple[Tensor, State, ScanTrace]:
    probes: tuple[Tensor, ...] = ()
    batch, steps = job.x.shape[:2]
    if torch.is_grad_enabled():
        probes = tuple(s.new_zeros(batch, steps, s.shape[-1]).requires_grad_() for s in job.state)
    output, state, saved = _run(job, probes, traced=True, narrow=narrow)
    return output, state, _trace(job, output, state, saved, probes)


def _run(job: ScanJob, probes: tuple[Tensor, ...], traced: bool, narrow: bool) -> tuple[Tensor, State, Tensor]:
    cell = job.cell
    assert isinstance(cell, BuiltIn)
    lstm = cell if isinstance(cell, LSTMCell) else None
    keep = job.keep or (0.0, 0.0)
    keep_h, keep_c = keep if len(keep) == 2 else (keep[0], 0.0)
    reset = job.reset_state if job.resets is not None else None
    differentiable = (
        job.x,
        cell.weight_ih,
        cell.weight_hh,
        cell.bias_ih,
        cell.bias_hh,
        cell.norm_ih,
        cell.norm_hh,
        lstm.weight_hr if lstm else None,
        lstm.weight_peephole if lstm else None,
        lstm.norm_c if lstm else None,
        lstm.norm_c_bias if lstm else None,
        job.state[0],
        job.state[1] if lstm else None,
        reset[0] if reset else None,
        reset[1] if reset and lstm else None,
        probes[0] if probes else None,
        probes[1] if probes and lstm else None,
    )
    graph = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in differentiable)
    output, h_n, c_n, saved = ops.run_recurrence(
        *differentiable,
        cell.hidden_mask,
        job.lengths,
        job.resets,
        keep_h if isinstance(keep_h, Tensor) else None,
        keep_c if isinstance(keep_c, Tensor) else None,
        0.0 if isinstance(keep_h, Tensor) else keep_h,
        0.0 if isinstance(keep_c, Tensor) else keep_c,
        kind_of(cell),
        lstm is not None and lstm.peephole_output == "previous",
        job.reverse,
        narrow,
        graph or traced,
        traced,
    )
    return output, (h_n, c_n) if lstm else (h_n,), saved


def kind_of(cell: BuiltIn) -> int:
    """The engine's number for a cell."""
    if isinstance(cell, LSTMCell):
        return buffers.LSTM
    if isinstance(cell, GRUCell):
        return buffers.GRU_RESET_AFTER if cell.reset_after else buffers.GRU_RESET_BEFORE
    return buffers.RNN_TANH if cell.activation is torch.tanh else buffers.RNN_RELU


def _trace(job: ScanJob, output: Tensor, state: State, saved: Tensor, probes: tuple[Tensor, ...]) -> ScanTrace:
    cell, active = job.cell, job.active
    assert isinstance(cell, BuiltIn)
    lstm = isinstance(cell, LSTMCell)
    given = {name: getattr(cell, name, None) for name in ("norm_ih", "norm_hh", "norm_c", "weight_hr", "hidden_mask")}
    layout = buffers.sections(
        job.x,
        cell.weight_hh,
        kind_of(cell),
        traced=True,
        **{name: value is not None for name, value in given.items()},
    )
    parts = layout.views(saved.detach())
    names = cell.state_names
    # the state that padding leaves alone: backwards, padding comes first
    frozen = dict(zip(names, job.state if job.reverse else state, strict=True))

    def at_all_times(rows: Tensor, padding: Tensor | None) -> Tensor:
        real = buffers.at_all_times(rows, job.x, job.lengths)
        if active is None or padding is None:
            return real
        return torch.where(active[..., None], real, padding.detach()[:, None])

    states = {"h": output if active is None else torch.where(active[..., None], output, frozen["h"][:, None])}
    if lstm:
        states["c"] = at_all_times(parts["c_left"], frozen["c"])
    gates = at_all_times(parts["gates"], None).chunk(max(len(cell.gate_names), 1), dim=-1)
    real = output.new_ones(1, 1, 1) if active is None else active[..., None].to(output.dtype)
    taken = [real * (1 - k) for k in job.keep] if job.keep is not None else [real for _ in names]
    batch, steps = job.x.shape[:2]
    x = job.x if active is None else torch.where(active[..., None], job.x, 0)
    return ScanTrace(
        x=job.x,
        gates_x=cell.project(x),
        output=output,
        entering={name: at_all_times(parts[f"{name}_entering"], frozen[name]) for name in names},
        states=states,
        gates=dict(zip(cell.gate_names, gates, strict=False)),
        probes=dict(zip(names, probes, strict=True)) if probes else {},
        taken={name: share.expand(batch, steps, -1) for name, share in zip(names, taken, strict=True)},
        output_is_state=True,
    )
