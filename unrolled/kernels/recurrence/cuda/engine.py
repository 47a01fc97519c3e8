"""The `cuda` engine: the built-in cells on an NVIDIA GPU, forward and hand-written backward (docs/cuda.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from unrolled.cells import BuiltIn, GRUCell, LSTMCell, RNNCell, State
from unrolled.kernels.cuda import compiler
from unrolled.kernels.native_operator import transformed
from unrolled.kernels.recurrence import torch_engine
from unrolled.kernels.recurrence.cuda import eager, launch, ops, single_step
from unrolled.kernels.recurrence.cuda.passes import Recurrence, Settings, Tensors
from unrolled.kernels.recurrence.cuda.plan import (
    GRU,
    GRU_BEFORE,
    KINDS,
    LSTM,
    LSTM_CURRENT,
    LSTM_NORM,
    LSTM_PREVIOUS,
    MAX_HIDDEN_SIZE,
    NUMBERS,
    RNN_RELU,
    RNN_TANH,
    padded_size,
)
from unrolled.kernels.recurrence.scan_job import ScanJob
from unrolled.kernels.unattended import is_unattended

DESCRIPTION = "CUDA kernels on an NVIDIA GPU, compiled at first use; float16 and bfloat16"
DEVICE = "cuda"


class Measured(NamedTuple):
    """Sizes at which this engine was faster than cuDNN in a run of benchmarks/recurrent_gpu.py.

    In training and inference, or in training alone; in a CUDA graph and without one. Short sequences without a graph
    take as long as the Python calls: `steps` is the fewest.
    """

    kinds: tuple[int, ...]
    dtype: torch.dtype
    gpu: str  # torch's name for it
    hidden: tuple[int, int]  # smallest and largest
    batch: tuple[int, int]
    steps: int
    run: str  # file under benchmarks/results
    in_training: bool = False  # in training only

    def holds(self, hidden: int, batch: int, steps: int, training: bool) -> bool:
        """True if the entry covers these sizes."""
        return (
            (training or not self.in_training)
            and self.hidden[0] <= hidden <= self.hidden[1]
            and self.batch[0] <= batch <= self.batch[1]
            and self.steps <= steps
        )


_H200, _RUN = "NVIDIA H200", "recurrent_gpu.json"
# `auto` prefers this engine to cuDNN at these sizes.
FASTER: tuple[Measured, ...] = (
    Measured((RNN_TANH, LSTM, GRU), torch.bfloat16, _H200, (128, 1024), (16, 64), 35, _RUN),
    Measured((GRU,), torch.float16, _H200, (256, 1024), (16, 64), 128, _RUN),
    Measured((LSTM,), torch.float16, _H200, (256, 1024), (64, 64), 128, _RUN),
    Measured((LSTM,), torch.float16, _H200, (128, 512), (64, 64), 512, _RUN),
    Measured((LSTM,), torch.float16, _H200, (128, 512), (16, 64), 512, _RUN, in_training=True),
)


def refuses(job: ScanJob) -> str | None:
    """The reason why this engine cannot run the job, or None."""
    x = job.x
    if x.device.type != DEVICE:
        return f"it runs on an NVIDIA GPU, the input is on {x.device}"
    reason = refuses_cell(job)
    if reason is not None:
        return reason
    if not torch.compiler.is_compiling():
        if transformed():
            return "it has no torch.func transforms and no forward-mode derivatives"
        if torch._C._is_tracing():
            return "torch.jit.trace records torch's own operators alone"
    return compiler.missing() or _refuses_gpu(job)


def refuses_cell(job: ScanJob) -> str | None:
    """The reason why no GPU can run the job, or None."""
    cell, x = job.cell, job.x
    if type(cell) not in (RNNCell, LSTMCell, GRUCell):
        return f"it has no cell {type(cell).__name__}"
    assert isinstance(cell, BuiltIn)
    absent = {
        "variational dropout inside the recurrence": cell.hidden_mask is not None,
        "projections": getattr(cell, "weight_hr", None) is not None,
        "zoneout": job.keep is not None,
    }
    for name, wanted in absent.items():
        if wanted:
            return f"it has no {name}"
    norms = [cell.norm_ih, cell.norm_hh, getattr(cell, "norm_c", None)]
    if any(norm is not None for norm in norms):
        peephole = getattr(cell, "weight_peephole", None) is not None
        if not isinstance(cell, LSTMCell) or peephole or any(norm is None for norm in norms):
            return "it has the layer norm of an LSTM without peepholes only: of W x, U h and c"
    if torch.is_autocast_enabled(DEVICE):
        if torch.get_autocast_dtype(DEVICE) not in NUMBERS:
            return f"it computes in float16 or bfloat16, autocast asks for {torch.get_autocast_dtype(DEVICE)}"
        wide = next((t.dtype for t in _tensors(job) if t.dtype not in (torch.float32, *NUMBERS)), None)
        if wide is not None:
            return f"it computes in float16 or bfloat16, got {wide}"
    else:
        kinds = {tensor.dtype for tensor in _tensors(job)}
        if len(kinds) > 1 or x.dtype not in NUMBERS:
            names = ", ".join(sorted(map(str, kinds)))
            return f"it computes in float16 or bfloat16 (or float32 under autocast to one of them), got {names}"
    if x.shape[0] == 0 or x.shape[1] == 0:
        return "the batch is empty"
    if cell.hidden_size > MAX_HIDDEN_SIZE:
        return f"it has up to {MAX_HIDDEN_SIZE} units, got {cell.hidden_size}"
    return refuses_activations(cell)


def refuses_activations(cell: BuiltIn) -> str | None:
    if isinstance(cell, RNNCell):
        usual = cell.activation in (torch.tanh, torch.relu)
    else:
        assert isinstance(cell, (LSTMCell, GRUCell))
        usual = cell.activation is torch.tanh and cell.gate_activation is torch.sigmoid
        usual = usual and getattr(cell, "output_activation", torch.tanh) is torch.tanh
    return None if usual else "it has the usual activations only: tanh and sigmoid, or relu for an RNN"


def _refuses_gpu(job: ScanJob) -> str | None:
    """The reason why this GPU cannot run the job, or None."""
    cell, device = job.cell, job.x.device
    assert isinstance(cell, BuiltIn)
    major, minor = torch.cuda.get_device_capability(device)
    if major < 8:
        return f"it needs a GPU of compute capability 8.0 or newer, this one has {major}.{minor}"
    kind, padded, batch = KINDS[kind_of(cell)], padded_size(cell.hidden_size), job.x.shape[0]
    if any(launch.plan(kind, which, padded, batch, 1, device) is None for which in ("forward", "backward")):
        return f"this GPU is too small for {cell.hidden_size} units and {batch} sequences"
    return None


def outdone(job: ScanJob) -> str | None:
    """The reason why `auto` should prefer another engine; None where this one is the fastest that was measured."""
    if torch_engine.refuses(job) is not None:
        return None  # the other engines launch a dozen kernels for each step
    if is_unattended() and (job.lengths is not None or _dtype(job) == torch.bfloat16):
        return None  # torch packs ragged rows on the host; in a CUDA graph short sequences are faster too
    cell = job.cell
    assert isinstance(cell, BuiltIn)
    name, kind, dtype = torch.cuda.get_device_name(job.x.device), kind_of(cell), _dtype(job)
    sizes = cell.hidden_size, job.x.shape[0], job.x.shape[1]
    training = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in _tensors(job))
    for entry in FASTER:
        if kind in entry.kinds and entry.dtype == dtype and entry.gpu == name and entry.holds(*sizes, training):
            return None
    return "it has not been measured to be faster than cuDNN at this size on this GPU"


def _dtype(job: ScanJob) -> torch.dtype:
    """The dtype in which the job is computed."""
    return torch.get_autocast_dtype(DEVICE) if torch.is_autocast_enabled(DEVICE) else job.x.dtype


def _tensors(job: ScanJob) -> Iterator[Tensor]:
    cell = job.cell
    assert isinstance(cell, BuiltIn)
    always = (job.x, cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh, *job.state, *(job.reset_state or ()))
    yield from (tensor for tensor in always if tensor is not None)
    more = ("weight_peephole", "norm_ih", "norm_hh", "norm_c", "norm_c_bias")
    found = (getattr(cell, name, None) for name in more)
    yield from (tensor for tensor in found if tensor is not None)


def kind_of(cell: BuiltIn) -> int:
    """The engine's number for a cell."""
    if isinstance(cell, LSTMCell):
        if cell.norm_hh is not None:
            return LSTM_NORM
        if cell.weight_peephole is None:
            return LSTM
        return LSTM_CURRENT if cell.peephole_output == "current" else LSTM_PREVIOUS
    if isinstance(cell, GRUCell):
        return GRU if cell.reset_after else GRU_BEFORE
    return RNN_TANH if cell.activation is torch.tanh else RNN_RELU


def run(job: ScanJob, share: int = 1) -> tuple[Tensor, State]:
    """The outputs (B, T, H) and the final state, in the input's dtype or autocast's.

    The job uses one of `share` equal parts of the GPU, if it fits there.
    """
    dtype = _dtype(job)
    if not torch.is_autocast_enabled(DEVICE):
        return _run(job, dtype, share)
    with torch.autocast(DEVICE, enabled=False):
        return _run(job, dtype, share)


def run_together(jobs: Sequence[ScanJob]) -> list[tuple[Tensor, State]]:
    """Run independent jobs side by side, each on its own stream and its own part of the GPU."""
    device = jobs[0].x.device
    here = torch.cuda.current_stream(device)
    there = [launch.side_stream(device, index) for index in range(1, len(jobs))]
    for stream in there:
        stream.wait_stream(here)
    results = []
    for job, stream in zip(jobs, (here, *there), strict=True):
        with torch.cuda.stream(stream):
            results.append(run(job, len(jobs)))
    for stream, (output, state) in zip(there, results[1:], strict=True):
        here.wait_stream(stream)
        for tensor in (output, *state):
            tensor.record_stream(here)
    return results


def step(job: ScanJob) -> State:
    """The state after the only step of a job, without a gradient."""
    cell = job.cell
    assert isinstance(cell, BuiltIn)
    fresh = single_step.step(cell, kind_of(cell), job.x[:, 0], job.state)
    return run(job)[1] if fresh is None else fresh


def stream(cells: Sequence[BuiltIn], batch: int, state: State) -> single_step.FusedStream | None:
    """A stack of layers that takes one step at a time; None if a layer needs more than one kernel."""
    kinds = [kind_of(cell) for cell in cells]
    if not all(single_step.supports(cell, kind, batch) for cell, kind in zip(cells, kinds, strict=True)):
        return None
    return single_step.FusedStream(cells, kinds, batch, state)


def _run(job: ScanJob, dtype: torch.dtype, share: int) -> tuple[Tensor, State]:
    cell = job.cell
    assert isinstance(cell, BuiltIn)
    kind, hidden = kind_of(cell), cell.hidden_size
    if hidden % 2 or kind == LSTM_NORM or torch.compiler.is_compiling():
        return _run_as_operator(job, dtype, share)
    h_0, c_0 = (None, None) if job.fresh else (job.state[0], job.state[1] if KINDS[kind].cell_state else None)
    reset_h, reset_c = (*(job.reset_state if job.resets is not None and job.reset_state else ()), None, None)[:2]
    layer = eager.LayerInputs(
        job.x, cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh, getattr(cell, "weight_peephole", None),
        h_0, c_0, reset_h, reset_c,
    )  # fmt: skip
    settings = Settings(kind, job.reverse, share)
    output, *state = eager.run(layer, eager.LayerSettings(dtype, job.active, job.lengths, job.resets, settings))
    return output, tuple(state)


def _run_as_operator(job: ScanJob, dtype: torch.dtype, share: int) -> tuple[Tensor, State]:
    """The same with operators that torch.compile can trace; also for odd hidden sizes and layer norm."""
    cell = job.cell
    assert isinstance(cell, BuiltIn)
    kind, hidden = kind_of(cell), cell.hidden_size
    extra = hidden % 2  # the kernels keep two units in a word: one padding unit
    gates_x = _project(job, extra, dtype)
    biases = (None if kind == LSTM_NORM else cell.bias_ih, cell.bias_hh)  # the norm adds that bias
    bias_x, bias_h = (None if bias is None else _padded(bias.view(-1, hidden), extra).flatten() for bias in biases)
    weight = cell.weight_hh.to(dtype)
    if extra:
        weight = F.pad(weight.reshape(-1, hidden, hidden), (0, extra, 0, extra)).flatten(0, 1)
    unit_weights = _unit_weights(cell)
    unit_weights = None if unit_weights is None else _padded(unit_weights.float(), extra)
    states = [_padded(s.to(dtype), extra) for s in job.state]
    reset: list[Tensor | None] = [None, None]
    if job.resets is not None and job.reset_state is not None:
        reset = [*(_padded(s.float(), extra) for s in job.reset_state), None]
    has_c = KINDS[kind].cell_state
    tensors = Tensors(
        weight, bias_x, bias_h, unit_weights, states[0], states[1] if has_c else None, reset[0],
        reset[1] if has_c else None, job.lengths, job.resets,
    )  # fmt: skip
    save = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (gates_x, *tensors))
    recurrence = Recurrence(tensors, Settings(kind, job.reverse, share, units=hidden))
    output, h_n, c_n, *_ = ops.run(recurrence, gates_x, save)
    finals = (h_n, c_n) if has_c else (h_n,)
    if extra:
        return output[..., :hidden].contiguous(), tuple(s[:, :hidden] for s in finals)
    return output, finals


def _padded(tensor: Tensor, extra: int) -> Tensor:
    """The tensor with `extra` zeros at the end of each row."""
    return F.pad(tensor, (0, extra)) if extra else tensor


def _project(job: ScanJob, extra: int, dtype: torch.dtype) -> Tensor:
    """W x for all steps (B, T, G·H), normed if the cell has layer norm, in the memory layout of x."""
    cell, x, active = job.cell, job.x, job.active
    assert isinstance(cell, BuiltIn)
    if active is not None:
        x = torch.where(active[..., None], x, 0)  # a NaN in the padding must not reach the weights' gradients
    time_first = x.stride(0) < x.stride(1)
    x = (x.transpose(0, 1) if time_first else x).to(dtype)
    gates = F.linear(x, cell.weight_ih.to(dtype))
    if cell.norm_ih is not None:
        shift = None if cell.bias_ih is None else cell.bias_ih.to(dtype)
        gates = F.layer_norm(gates, cell.norm_ih.shape, cell.norm_ih.to(dtype), shift)
    if extra:
        gates = _padded(gates.reshape(*gates.shape[:2], -1, cell.hidden_size), extra).flatten(-2)
    return gates.transpose(0, 1) if time_first else gates


def _unit_weights(cell: BuiltIn) -> Tensor | None:
    """Peepholes (3, H), or gains and shifts of the norms (6, H)."""
    if not isinstance(cell, LSTMCell):
        return None
    if cell.norm_hh is None or cell.norm_c is None:
        return cell.weight_peephole
    shift = torch.zeros_like(cell.norm_c) if cell.norm_c_bias is None else cell.norm_c_bias
    return torch.cat([cell.norm_hh.view(4, -1), cell.norm_c[None], shift[None]])
