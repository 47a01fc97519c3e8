"""The `native` engine: the built-in cells in C++ on a CPU, forward and hand-written backward (docs/native.md)."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from unrolled.cells import BuiltIn, LSTMCell, ScanTrace, State
from unrolled.cells.apart import row_engine
from unrolled.kernels import native_core as core
from unrolled.kernels.native_operator import transformed
from unrolled.kernels.recurrence import native_ops as ops
from unrolled.kernels.recurrence import torch_engine
from unrolled.kernels.recurrence.native_cells import kind_of, refuses_cell
from unrolled.kernels.recurrence.native_rows import RowOrder
from unrolled.kernels.recurrence.scan_job import ScanJob

DESCRIPTION = (
    f"C++ on a CPU, {core.ISA} kernels; float32, every option of the built-in cells but other activations; "
    "second derivatives by `reference`"
)
TAKES_TENSORS = core.TAKES_TENSORS


def about() -> str:
    """The instruction sets and threads of this build, in a line."""
    return f"built; {core.ISA} kernels (of {', '.join(core.ISAS)}), threads: {core.THREADING}"


AUTOCAST = (torch.float32, torch.bfloat16, torch.float16)


def refuses(job: ScanJob) -> str | None:
    """The reason why this engine cannot run the job, or None."""
    cell, x = job.cell, job.x
    reason = refuses_cell(cell)
    if reason is not None:
        return reason
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
            return "torch.jit.trace records only torch's own operators"
    masks = [cell.hidden_mask, *(job.keep or ())]
    if any(isinstance(mask, Tensor) and mask.requires_grad for mask in masks):
        return "it has no gradient for masks"
    return None


def outdone(job: ScanJob) -> str | None:
    """The reason why torch is faster for the job, or None.

    Measured on 1 and 2 cores with AVX-512. torch's LSTM is one call of a fused library with products near the peak of
    the processor: without gradients it is faster for one long sequence, and for three, since products here take pairs
    of rows. Its GRU and RNN are several calls per step, and faster only for few steps. With lengths it packs the batch
    and loops over the steps of any cell, and is never faster.
    """
    cell = job.cell
    assert isinstance(cell, BuiltIn)
    if row_engine() is not None or torch_engine.refuses(job) is not None:
        return None
    if torch.compiler._is_exporting_flag:  # is_exporting() is also True inside torch.compile of torch 2.11
        return _outdone_in_export(job)
    if torch.compiler.is_compiling():
        return None  # torch's layers become a loop over time, compiled again for each length
    if torch.is_autocast_enabled("cpu") and job.lengths is None:
        return "torch is faster in autocast's precision"
    if core.ISA == "plain" and platform.machine() in ("x86_64", "AMD64"):
        return "torch is faster than its plain kernels"
    if job.lengths is not None:
        return None
    batch, steps = job.x.shape[:2]
    if isinstance(cell, LSTMCell):
        if not torch.is_grad_enabled() and batch in (1, 3) and steps >= _LONG and cell.hidden_size >= _WIDE:
            return "torch is faster without gradients for few sequences"
    elif steps < _STEPS:
        return "torch is faster for few steps"
    return None


_LONG, _WIDE, _STEPS = 20, 128, 5


def _outdone_in_export(job: ScanJob) -> str | None:
    """The reason why an exported program should hold torch's own operators, or None.

    They need no import of this package, but fix the number of steps, and have no lengths.
    """
    from torch.fx.experimental.symbolic_shapes import has_static_value

    if not has_static_value(job.x.shape[1]) or job.lengths is not None:
        return None
    return "an exported program uses torch's own operators"


def _tensors(job: ScanJob) -> Iterator[Tensor]:
    cell = job.cell
    assert isinstance(cell, BuiltIn)
    yield from (job.x, cell.weight_ih, cell.weight_hh, *job.state)
    yield from (keep for keep in job.keep or () if isinstance(keep, Tensor))


def run(job: ScanJob) -> tuple[Tensor, State]:
    """The outputs (B, T, P) and the final state.

    Under autocast the result is in its dtype, but computed in float32. Only an LSTM's products are in bfloat16, if that
    is the dtype and the processor has an instruction for them.
    """
    if torch.is_autocast_enabled("cpu"):
        kind = torch.get_autocast_dtype("cpu")
        with torch.autocast("cpu", enabled=False):
            output, state = _run(in_float32(job), _narrow(job, kind))
        return output.to(kind), tuple(s.to(kind) for s in state)
    return _run(job, narrow=False)


def _narrow(job: ScanJob, autocast: torch.dtype) -> bool:
    """True if products are in bfloat16."""
    cell, options = job.cell, ("weight_hr", "norm_hh", "norm_c")
    if autocast != torch.bfloat16 or not isinstance(cell, LSTMCell):
        return False
    return core.NARROW and all(getattr(cell, name) is None for name in options)


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
    """`run`, and the gates and states, which the backward pass saves anyway."""
    if torch.is_autocast_enabled("cpu"):
        kind = torch.get_autocast_dtype("cpu")
        with torch.autocast("cpu", enabled=False):
            output, state, trace = _run_traced(in_float32(job), _narrow(job, kind))
        return output.to(kind), tuple(s.to(kind) for s in state), trace
    return _run_traced(job, narrow=False)


def _run_traced(job: ScanJob, narrow: bool) -> tuple[Tensor, State, ScanTrace]:
    probes = job.probes() if torch.is_grad_enabled() else ()
    inputs = operator_inputs(job, probes, traced=True, narrow=narrow)
    results = ops.recurrence(inputs, show_saved=True)
    parts = ops.saved_sections(inputs).views(results.saved.detach())
    state = (results.h_n, results.c_n)[: len(job.state)]
    return results.output, state, _trace(job, results.output, state, parts, probes)


def _run(job: ScanJob, narrow: bool) -> tuple[Tensor, State]:
    results = ops.recurrence(operator_inputs(job, narrow=narrow))
    return results.output, (results.h_n, results.c_n)[: len(job.state)]


def operator_inputs(
    job: ScanJob, probes: tuple[Tensor, ...] = (), traced: bool = False, narrow: bool = False
) -> ops.RecurrenceInputs:
    """The inputs of the operator for a job."""
    cell = job.cell
    assert isinstance(cell, BuiltIn)
    kind = kind_of(cell)
    assert kind is not None
    lstm = cell if isinstance(cell, LSTMCell) else None
    h_0, c_0 = _h_and_c(job.state)
    reset_h, reset_c = _h_and_c(job.reset_state if job.resets is not None else None)
    probe_h, probe_c = _h_and_c(probes)
    keep_h, keep_c = _h_and_c(job.keep)
    return ops.RecurrenceInputs(
        x=job.x,
        weight_ih=cell.weight_ih,
        weight_hh=cell.weight_hh,
        bias_ih=cell.bias_ih,
        bias_hh=cell.bias_hh,
        norm_ih=cell.norm_ih,
        norm_hh=cell.norm_hh,
        weight_hr=lstm.weight_hr if lstm else None,
        weight_peephole=lstm.weight_peephole if lstm else None,
        norm_c=lstm.norm_c if lstm else None,
        norm_c_bias=lstm.norm_c_bias if lstm else None,
        h_0=h_0,
        c_0=c_0,
        reset_h=reset_h,
        reset_c=reset_c,
        probe_h=probe_h,
        probe_c=probe_c,
        hidden_mask=cell.hidden_mask,
        lengths=job.lengths,
        resets=job.resets,
        keep_h=keep_h if isinstance(keep_h, Tensor) else None,
        keep_c=keep_c if isinstance(keep_c, Tensor) else None,
        keep_rate_h=0.0 if isinstance(keep_h, Tensor) else keep_h or 0.0,
        keep_rate_c=0.0 if isinstance(keep_c, Tensor) else keep_c or 0.0,
        kind=kind,
        peephole_previous=lstm is not None and lstm.peephole_output == "previous",
        reverse=job.reverse,
        narrow=narrow,
        traced=traced,
    )


def _h_and_c(of_states: tuple[Any, ...] | None) -> tuple[Any, Any]:
    """The entries of h and c, or None."""
    if not of_states:
        return None, None
    return of_states[0], of_states[1] if len(of_states) > 1 else None


def _trace(
    job: ScanJob, output: Tensor, state: State, parts: dict[str, Tensor], probes: tuple[Tensor, ...]
) -> ScanTrace:
    """The states and gates of a run, from its saved sections."""
    cell, active, order = job.cell, job.active, RowOrder(job.x, job.lengths)
    assert isinstance(cell, BuiltIn)
    names = cell.state_names
    # the state in the padding, which comes first in reverse
    frozen = dict(zip(names, job.state if job.reverse else state, strict=True))

    def at_all_times(rows: Tensor, padding: Tensor | None) -> Tensor:
        real = order.sequences(rows, job.x.shape[0])
        if active is None or padding is None:
            return real
        return torch.where(active[..., None], real, padding.detach()[:, None])

    states = {"h": output if active is None else torch.where(active[..., None], output, frozen["h"][:, None])}
    if "c" in names:
        states["c"] = at_all_times(parts["c_left"], frozen["c"])
    gates = at_all_times(parts["gates"], None).chunk(max(len(cell.gate_names), 1), dim=-1)
    x = job.x if active is None else torch.where(active[..., None], job.x, 0)
    return ScanTrace(
        x=job.x,
        gates_x=cell.project(x),
        output=output,
        entering={name: at_all_times(parts[f"{name}_entering"], frozen[name]) for name in names},
        states=states,
        gates=dict(zip(cell.gate_names, gates, strict=False)),
        probes=dict(zip(names, probes, strict=True)) if probes else {},
        taken=job.taken(output),
        output_is_state=True,
    )
