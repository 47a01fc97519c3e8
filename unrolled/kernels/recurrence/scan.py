"""`scan` runs a cell over time on the fastest engine for the job."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import torch
from torch import Tensor

from unrolled.cells import AnyCell, ScanTrace, State
from unrolled.errors import UserError
from unrolled.kernels.engine_choice import NO_COMPILER, NOT_BUILT, Choice, choose_of, known_engine
from unrolled.kernels.lengths import real_steps
from unrolled.kernels.recurrence import onnx_node, reference, torch_engine
from unrolled.kernels.recurrence.cuda import engine as cuda
from unrolled.kernels.recurrence.scan_job import Keep, ScanJob

# In the order in which `auto` tries them. An engine is a module with DESCRIPTION, refuses(job) and run(job);
# run_traced(job) if it can return gates; outdone(job) if another engine is faster for some jobs; and DEVICE if it
# supports a single type of device.
ENGINES: dict[str, ModuleType] = {"cuda": cuda, "torch": torch_engine, "reference": reference}

try:
    from unrolled.kernels.recurrence import native
except ImportError as error:
    missing = error.name == "unrolled.kernels._native"
    NOT_BUILT["native"] = NO_COMPILER if missing else str(error)
else:
    ENGINES = {"native": native, **ENGINES}


def check_engine(backend: str) -> str:
    """The name of an engine or "auto"; anything else is an error."""
    return known_engine(ENGINES, backend)


def choose(job: ScanJob, backend: str = "auto", *, traced: bool = False) -> Choice:
    """The engine that will run the job; raises if the named engine cannot. A traced run needs one with gates."""
    if not traced and onnx_node.wanted(backend):
        onnx_node.check(job)
        return Choice(onnx_node.NAME, "an ONNX export records nodes")
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
    """Run a cell over time: x (B, T, D) → outputs (B, T, O) and the final state.

    `state` is the initial state (default: zeros), one (B, size) tensor for each of the cell's. Steps past `lengths`
    (B,) keep the state and output zero. `resets` (B, T), or (B,) for the first step, is True where a new sequence
    begins: before it the state returns to `reset_state` (default: zeros). `keep` is zoneout (see `Keep`). `reverse`
    runs from the last step to the first, separately for each sequence between resets and within each row's length.

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
    return _run(choose(job, backend).engine, job)


def _run(engine: str, job: ScanJob) -> tuple[Tensor, State]:
    module = onnx_node if engine == onnx_node.NAME else ENGINES[engine]
    output, state = module.run(job)
    return output, state


def run_jobs(jobs: Sequence[ScanJob], backend: str = "auto", first: str | None = None) -> list[tuple[Tensor, State]]:
    """`run_job` for several independent jobs; the cuda engine runs them concurrently.

    `first` is the engine of the first one, if it is chosen already.
    """
    engines = [first or choose(jobs[0], backend).engine, *(choose(job, backend).engine for job in jobs[1:])]
    if len(jobs) > 1 and set(engines) == {"cuda"} and not torch.compiler.is_compiling():
        return cuda.run_together(jobs)
    return [_run(engine, job) for engine, job in zip(engines, jobs, strict=True)]


def run_job_traced(job: ScanJob, backend: str = "auto", chosen: str | None = None) -> tuple[Tensor, State, ScanTrace]:
    """`run_job` with a trace, on an engine that returns gates: the `chosen` one, or the one to choose."""
    output, state, trace = ENGINES[chosen or choose(job, backend, traced=True).engine].run_traced(job)
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
    """Check the job, and bring its resets into running order, without those in the padding."""
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
        resets = resets & real_steps(lengths, steps)
    if not reverse:
        return resets
    # backwards, a sequence begins at its last step: the one before the next sequence
    return torch.cat([resets[:, 1:], torch.zeros_like(resets[:, :1])], dim=1)
