"""The reference engine: a loop over time that runs any cell."""

from __future__ import annotations

import torch
from torch import Tensor

from unrolled.cells import AnyCell, BuiltIn, ScanTrace, State, Step
from unrolled.errors import UserError
from unrolled.kernels.recurrence.scan_job import ScanJob

DESCRIPTION = "a plain loop over time in torch; any cell, any dtype, any order of derivative"


def refuses(job: ScanJob) -> str | None:
    """The reason why this engine cannot run the job: always None."""
    return None


def run(job: ScanJob) -> tuple[Tensor, State]:
    """The outputs (B, T, O) and the final state."""
    output, state, _ = _loop(job, traced=False)
    return output, state


def run_traced(job: ScanJob) -> tuple[Tensor, State, ScanTrace]:
    """`run`, and the states and gates of every step."""
    output, state, trace = _loop(job, traced=True)
    assert trace is not None
    return output, state, trace


def _loop(job: ScanJob, traced: bool) -> tuple[Tensor, State, ScanTrace | None]:
    cell, x, active = job.cell, job.x, job.active
    if active is not None:
        x = torch.where(active[..., None], x, 0)  # a NaN in the padding must not reach the weights' gradients
    gates_x = cell.project(x)  # (B, T, G)
    probes = job.probes() if traced and torch.is_grad_enabled() else None
    steps = x.shape[1]
    outputs: list[Tensor] = [x.new_empty(0)] * steps
    seen: list[tuple[State, State, tuple[Tensor, ...]]] = [((), (), ())] * steps
    state, output_is_state = job.state, True
    for t in reversed(range(steps)) if job.reverse else range(steps):
        entering = _reset(job, state, t)
        output, new, gates = _step(cell, gates_x[:, t], entering)
        output_is_state = output is new[0]
        if job.keep is not None:
            new = tuple(_mix(_at(k, t), old, n) for k, old, n in zip(job.keep, entering, new, strict=True))
        if active is not None:
            real = active[:, t, None]  # (B, 1)
            new = tuple(torch.where(real, n, old) for n, old in zip(new, entering, strict=True))
            gates = tuple(torch.where(real, g, 0) for g in gates) if traced else gates
        if probes is not None:
            new = tuple(n + p[:, t] for n, p in zip(new, probes, strict=True))
        output = new[0] if output_is_state else output
        outputs[t] = output if active is None else torch.where(active[:, t, None], output, 0)
        if traced:
            seen[t] = (entering, new, gates)
        state = new
    stacked = torch.stack(outputs, dim=1)  # (B, T, O)
    if x.dtype != torch.float64 and torch.is_autocast_enabled(x.device.type):
        # the loop keeps the state in the wider type; results have autocast's
        narrow = torch.get_autocast_dtype(x.device.type)
        stacked, state = stacked.to(narrow), tuple(s.to(narrow) for s in state)
    trace = _trace(job, gates_x, stacked, seen, probes, output_is_state) if traced else None
    return stacked, state, trace


def _step(cell: AnyCell, gates_x: Tensor, entering: State) -> Step:
    """One step; the results of a custom cell are checked."""
    result = cell.step(gates_x, entering)
    if isinstance(cell, BuiltIn):
        return Step(*result)
    name = type(cell).__name__
    if not isinstance(result, tuple) or len(result) not in (2, 3) or not isinstance(result[1], (tuple, list)):
        raise UserError(
            f"{name}.step returned {_kinds(result)}.",
            "Expected `output, state` or `output, state, gates`, where state and gates are tuples: return h, (h,).",
        )
    step = Step(result[0], tuple(result[1]), tuple(result[2]) if len(result) == 3 else ())
    if len(step.gates) != len(cell.gate_names):
        problem = f"{name}.step returned {len(step.gates)} gates, but gate_names are {cell.gate_names}."
        raise UserError(problem, "Return as many gates as are named.")
    if len(step.state) != len(cell.state_names):
        problem = f"{name}.step returned {len(step.state)} states, but state_names are {cell.state_names}."
        raise UserError(problem, "Return as many states as are named.")
    for state_name, old, new in zip(cell.state_names, entering, step.state, strict=True):
        if new.shape != old.shape:
            problem = f"{name}.step made the state {state_name} of shape {tuple(new.shape)}."
            raise UserError(problem, f"Expected {tuple(old.shape)}, as it was before the step.")
    return step


def _kinds(result: object) -> str:
    if isinstance(result, tuple):
        return "(" + ", ".join(type(part).__name__ for part in result) + ")"
    return f"a {type(result).__name__}"


def _reset(job: ScanJob, state: State, t: int) -> State:
    if job.resets is None:
        return state
    fresh = job.reset_state or tuple(torch.zeros_like(s) for s in state)
    return tuple(torch.where(job.resets[:, t, None], f, s) for f, s in zip(fresh, state, strict=True))


def _at(keep: Tensor | float, t: int) -> Tensor | float:
    return keep[:, t] if isinstance(keep, Tensor) else keep


def _mix(keep: Tensor | float, old: Tensor, new: Tensor) -> Tensor:
    return keep * old + (1 - keep) * new


def _trace(
    job: ScanJob,
    gates_x: Tensor,
    output: Tensor,
    seen: list[tuple[State, State, tuple[Tensor, ...]]],
    probes: State | None,
    output_is_state: bool,
) -> ScanTrace:
    names = job.cell.state_names
    return ScanTrace(
        x=job.x,
        gates_x=gates_x,
        output=output,
        entering={n: torch.stack([s[0][i] for s in seen], dim=1) for i, n in enumerate(names)},
        states={n: torch.stack([s[1][i] for s in seen], dim=1) for i, n in enumerate(names)},
        gates={n: torch.stack([s[2][i] for s in seen], dim=1) for i, n in enumerate(job.cell.gate_names)},
        probes=dict(zip(names, probes, strict=True)) if probes is not None else {},
        taken=job.taken(output),
        output_is_state=output_is_state,
    )
