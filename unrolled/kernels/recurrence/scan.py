"""`scan` runs a cell over time on the fastest engine that computes the job."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import torch
from torch import Tensor

from unrolled.cells import AnyCell, ScanTrace, State
from unrolled.errors import UserError
from unrolled.kernels.engine_choice import NOT_BUILT, Choice, choose_of, known_engine
from unrolled.kernels.recurrence import reference, torch_engine
from unrolled.kernels.recurrence.cuda import engine as cuda
from unrolled.kernels.recurrence.scan_job import Keep, ScanJob

# In the order in which `auto` tries them. An engine is a module with DESCRIPTION, refuses(job) and run(job),
# run_traced(job) if it can show its gates, outdone(job), if another is faster for some jobs it could do, and DEVICE, if
# it is for one type of device alone.
ENGINES: dict[str, ModuleType] = {"cuda": cuda, "torch": torch_engine, "reference": reference}

try:
    from unrolled.kernels.recurrence import native
except ImportError as error:
    missing = error.name == "unrolled.kernels._native"
    NOT_BUILT["native"] = "no C++ compiler was found when it was installed" if missing else str(error)
else:
    ENGINES = {"native": native, **ENGINES}


def check_engine(backend: str) -> str:
    """The name of an engine or "auto"; anything else is an error."""
    return known_engine(ENGINES, backend)


def choose(job: ScanJob, backend: str = "auto", *, traced: bool = False) -> Choice:
    """The engine that will run the job; an engine asked for by name that cannot do it raises.

    A traced run needs an engine that shows its gates.
    """
    return choose_of(ENGINES, job, backend, traced=traced)


def scan(
    cell: AnyCell,
    x: Tensor,
    state: State | None = None,
    *,
    lengths: Tensor | None = None,
    resets: Tensor | None = None,
    reset_state: State | None = None,
    keep: Keep | None = None,
    reverse: bool = False,
    backend: str = "auto",
) -> tuple[Tensor, State]:
    """Runs a cell over time: x (B, T, D) → outputs (B, T, O) and the final state.

    `state` is the state before the first step (zeros if not given), one (B, size) tensor for each of the cell's.
    `lengths` (B,): steps past a length leave the state alone and output zero. `resets` (B, T), True where a new
    sequence begins: the state returns to `reset_state` (zeros if not given) before the step; or (B,), for the
    first step. `keep` is zoneout (see `Keep`). `reverse` runs from the last step to the first, each row from its
    own length and each sequence between resets for itself.

    >>> from unrolled.cells import RNNCell
    >>> cell = RNNCell(weight_ih=torch.eye(2), weight_hh=torch.eye(2))
    >>> output, (h,) = scan(cell, torch.ones(1, 3, 2), lengths=torch.tensor([2]))
    >>> output[0, :, 0]
    tensor([0.7616, 0.9427, 0.0000])
    >>> h
    tensor([[0.9427, 0.9427]])
    """
    job = make_job(cell, x, state, lengths, resets, reset_state, keep, reverse)
    return run_job(job, backend)


def scan_traced(
    cell: AnyCell,
    x: Tensor,
    state: State | None = None,
    *,
    lengths: Tensor | None = None,
    resets: Tensor | None = None,
    reset_state: State | None = None,
    keep: Keep | None = None,
    reverse: bool = False,
    backend: str = "auto",
) -> tuple[Tensor, State, ScanTrace]:
    """`scan`, and the states and gates of every step."""
    job = make_job(cell, x, state, lengths, resets, reset_state, keep, reverse)
    return run_job_traced(job, backend)


def run_job(job: ScanJob, backend: str = "auto") -> tuple[Tensor, State]:
    """Outputs and final state of a job, on the chosen engine."""
    output, state = ENGINES[choose(job, backend).engine].run(job)
    return output, state


def run_jobs(jobs: Sequence[ScanJob], backend: str = "auto") -> list[tuple[Tensor, State]]:
    """The same of several jobs that do not wait for each other; the cuda engine runs them side by side."""
    engines = [choose(job, backend).engine for job in jobs]
    if len(jobs) > 1 and set(engines) == {"cuda"} and not torch.compiler.is_compiling():
        return cuda.run_together(jobs)
    return [ENGINES[engine].run(job) for engine, job in zip(engines, jobs, strict=True)]


def run_job_traced(job: ScanJob, backend: str = "auto") -> tuple[Tensor, State, ScanTrace]:
    """The same with a trace, on the chosen engine of those that show their gates."""
    output, state, trace = ENGINES[choose(job, backend, traced=True).engine].run_traced(job)
    return output, state, trace


def make_job(
    cell: AnyCell,
    x: Tensor,
    state: State | None,
    lengths: Tensor | None,
    resets: Tensor | None,
    reset_state: State | None,
    keep: Keep | None,
    reverse: bool,
    fresh: bool = False,
) -> ScanJob:
    """The checked job: resets are put in the order of running, and those in the padding dropped."""
    if x.dim() != 3:
        raise UserError(f"x must be (batch, time, features), got shape {tuple(x.shape)}.")
    if state is None:
        fresh = True
        state = tuple(x.new_zeros(x.shape[0], size) for size in cell.state_sizes)
    for name, size, tensor in zip(cell.state_names, cell.state_sizes, state, strict=True):
        if tensor.shape != (x.shape[0], size):
            raise UserError(
                f"The state {name} has shape {tuple(tensor.shape)}.",
                f"Expected {(x.shape[0], size)}: (batch, size).",
            )
    if resets is not None:
        resets = _resets_in_running_order(resets, x, lengths, reverse)
    return ScanJob(cell, x, state, lengths, resets, reset_state, keep, reverse, fresh)


def _resets_in_running_order(resets: Tensor, x: Tensor, lengths: Tensor | None, reverse: bool) -> Tensor:
    batch, steps = x.shape[:2]
    if resets.dim() == 1:  # (B,): at the first step
        resets = torch.cat([resets[:, None], resets.new_zeros(batch, steps - 1)], dim=1)
    if lengths is not None:
        resets = resets & (torch.arange(steps, device=x.device) < lengths[:, None])
    if not reverse:
        return resets
    # backwards, a sequence is entered at its end: the step before the next one's beginning
    return torch.cat([resets[:, 1:], torch.zeros_like(resets[:, :1])], dim=1)
