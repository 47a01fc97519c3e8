"""The `native` engine: the built-in cells in C++ on a CPU, forward and hand-written backward (docs/native.md)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from unrolled.cells import BuiltIn, GRUCell, LSTMCell, RNNCell, ScanTrace, State
from unrolled.kernels import native_ops as ops
from unrolled.kernels.job import Job

DESCRIPTION = f"C++ on a CPU, {ops.ISA} kernels; float32, every option of the built-in cells"


def refuses(job: Job) -> str | None:
    """What the job asks for that this engine does not compute, or None."""
    cell, x = job.cell, job.x
    if type(cell) not in (RNNCell, LSTMCell, GRUCell):
        return f"it has no cell {type(cell).__name__}"
    assert isinstance(cell, BuiltIn)
    if x.device.type != "cpu":
        return f"it runs on a CPU, the input is on {x.device}"
    for tensor in _tensors(job):
        if tensor.dtype != torch.float32:
            return f"it computes in float32, got {tensor.dtype}"
    if torch.is_autocast_enabled("cpu"):
        return "it computes in float32, autocast asks for less"
    if x.shape[0] == 0:
        return "the batch is empty"
    if torch._C._functorch.peek_interpreter_stack() is not None or torch.autograd.forward_ad._current_level >= 0:
        return "it has no torch.func transforms and no forward-mode derivatives"
    masks = [cell.hidden_mask, *(job.keep or ())]
    if any(isinstance(mask, Tensor) and mask.requires_grad for mask in masks):
        return "it has no gradient for masks"
    return _refuses_activations(cell)


def _tensors(job: Job) -> Iterator[Tensor]:
    cell = job.cell
    assert isinstance(cell, BuiltIn)
    yield from (job.x, cell.weight_ih, cell.weight_hh, *job.state)
    yield from (keep for keep in job.keep or () if isinstance(keep, Tensor))


def _refuses_activations(cell: BuiltIn) -> str | None:
    if isinstance(cell, RNNCell):
        usual = cell.activation in (torch.tanh, torch.relu)
    elif isinstance(cell, LSTMCell):
        usual = cell.activation is torch.tanh and cell.output_activation is torch.tanh
        usual = usual and cell.gate_activation is torch.sigmoid
    else:
        assert isinstance(cell, GRUCell)
        usual = cell.activation is torch.tanh and cell.gate_activation is torch.sigmoid
    return None if usual else "it has the usual activations only: tanh and sigmoid, or relu for an RNN"


def run(job: Job) -> tuple[Tensor, State]:
    """The outputs (B, T, P) and the final state."""
    output, state, _ = _run(job, probes=(), traced=False)
    return output, state


def run_traced(job: Job) -> tuple[Tensor, State, ScanTrace]:
    """The same numbers, and the gates and states that the backward pass keeps anyway."""
    probes: tuple[Tensor, ...] = ()
    batch, steps = job.x.shape[:2]
    if torch.is_grad_enabled():
        probes = tuple(s.new_zeros(batch, steps, s.shape[-1]).requires_grad_() for s in job.state)
    output, state, saved = _run(job, probes, traced=True)
    return output, state, _trace(job, output, state, saved, probes)


def _run(job: Job, probes: tuple[Tensor, ...], traced: bool) -> tuple[Tensor, State, Tensor]:
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
        graph or traced,
        traced,
    )
    return output, (h_n, c_n) if lstm else (h_n,), saved


def kind_of(cell: BuiltIn) -> int:
    """The engine's number for a cell."""
    if isinstance(cell, LSTMCell):
        return ops.LSTM
    if isinstance(cell, GRUCell):
        return ops.GRU_RESET_AFTER if cell.reset_after else ops.GRU_RESET_BEFORE
    return ops.RNN_TANH if cell.activation is torch.tanh else ops.RNN_RELU


def _trace(job: Job, output: Tensor, state: State, saved: Tensor, probes: tuple[Tensor, ...]) -> ScanTrace:
    cell, active = job.cell, job.active
    assert isinstance(cell, BuiltIn)
    lstm = isinstance(cell, LSTMCell)
    given = {name: getattr(cell, name, None) for name in ("norm_ih", "norm_hh", "norm_c", "weight_hr", "hidden_mask")}
    layout = ops.sections(
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
        real = ops.at_all_times(rows, job.x, job.lengths)
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
