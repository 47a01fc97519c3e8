"""The `torch` engine: torch.nn's own path, ATen on a CPU and cuDNN on a GPU, for jobs it supports."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields
from functools import cache

import torch
from torch import _VF, Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from unrolled.cells import BuiltIn, GRUCell, LSTMCell, RNNCell, State
from unrolled.kernels.recurrence.scan_job import ScanJob

DESCRIPTION = "torch.nn's own path: ATen on a CPU, cuDNN on a GPU"

_EXTRAS = {
    "norm_ih": "layer norm",
    "norm_hh": "layer norm",
    "hidden_mask": "variational dropout inside the recurrence",
    "weight_peephole": "peepholes",
}


def refuses(job: ScanJob) -> str | None:
    """The reason why torch.nn cannot run the job, or None."""
    cell = job.cell
    if not isinstance(cell, BuiltIn):
        return f"torch has no cell {type(cell).__name__}"
    for field in fields(cell):
        if field.name in _EXTRAS and getattr(cell, field.name) is not None:
            return f"torch.nn has no {_EXTRAS[field.name]}"
    if job.resets is not None:
        return "torch.nn has no resets"
    if job.keep is not None:
        return "torch.nn has no zoneout"
    if (cell.bias_ih is None) != (cell.bias_hh is None):
        return "torch.nn has both biases or none"
    return _refuses_activations(cell)


def _refuses_activations(cell: BuiltIn) -> str | None:
    if isinstance(cell, RNNCell):
        usual = cell.activation in (torch.tanh, torch.relu)
    elif isinstance(cell, LSTMCell):
        activations = (cell.activation, cell.output_activation, cell.gate_activation)
        usual = activations == (torch.tanh, torch.tanh, torch.sigmoid)
    elif isinstance(cell, GRUCell):
        if not cell.reset_after:
            return "torch.nn has no GRU with reset_after=False"
        usual = (cell.activation, cell.gate_activation) == (torch.tanh, torch.sigmoid)
    else:
        return f"torch has no cell {type(cell).__name__}"
    return None if usual else "torch.nn has other activations"


def run(job: ScanJob) -> tuple[Tensor, State]:
    """The outputs (B, T, P) and the final state of one layer in one direction."""
    x = _flipped(job.x, job) if job.reverse else job.x
    if job.lengths is None:
        output, state = _call(job.cell, x, None, job.state)
    else:
        output, state = _ragged(job, x, job.lengths)
    return (_flipped(output, job) if job.reverse else output), state


def computable(x: Tensor) -> AbstractContextManager[None]:
    """Without oneDNN where it would fail: LSTMs in 16 bits on a CPU without instructions for them."""
    if x.device.type != "cpu" or not torch.is_autocast_enabled("cpu") or _in_hardware(torch.get_autocast_dtype("cpu")):
        return nullcontext()
    return without_onednn()


@cache
def _in_hardware(dtype: torch.dtype) -> bool:
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]  # torch's
        return True  # oneDNN is not used
    checks = {torch.bfloat16: "_is_mkldnn_bf16_supported", torch.float16: "_is_mkldnn_fp16_supported"}
    return dtype not in checks or bool(getattr(torch.ops.mkldnn, checks[dtype])())


@contextmanager
def without_onednn() -> Iterator[None]:
    """torch's own loops instead of oneDNN's layers."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def _ragged(job: ScanJob, x: Tensor, lengths: Tensor) -> tuple[Tensor, State]:
    """Packed sequences without empty ones: those run one step on zeros, and its result is discarded."""
    x = torch.where((lengths > 0)[:, None, None], x, 0)
    packed = pack_padded_sequence(x, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
    data, state = _call(job.cell, packed.data, packed.batch_sizes, _sorted(job.state, packed.sorted_indices))
    state = _sorted(state, packed.unsorted_indices)
    padded = PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
    output, _ = pad_packed_sequence(padded, batch_first=True, total_length=x.shape[1])
    real = (lengths > 0)[:, None]  # (B, 1)
    output = torch.where(real[..., None], output, 0)
    return output, tuple(torch.where(real, new, old) for new, old in zip(state, job.state, strict=True))


def _sorted(state: State, indices: Tensor | None) -> State:
    assert indices is not None
    return tuple(s.index_select(0, indices) for s in state)


def _call(cell: object, x: Tensor, batch_sizes: Tensor | None, state: State) -> tuple[Tensor, State]:
    """One layer, one direction of torch's fused function; x is (B, T, D), or (ΣT, D) with batch sizes."""
    assert isinstance(cell, BuiltIn)
    weights = [cell.weight_ih, cell.weight_hh]
    weights += [bias for bias in (cell.bias_ih, cell.bias_hh) if bias is not None]
    if isinstance(cell, LSTMCell) and cell.weight_hr is not None:
        weights.append(cell.weight_hr)
    hidden = [s.unsqueeze(0) for s in state]  # (1, B, H)
    initial = hidden if isinstance(cell, LSTMCell) else hidden[0]
    function = _function(cell)
    one_layer = (cell.bias_ih is not None, 1, 0.0, torch.is_grad_enabled(), False)
    with warnings.catch_warnings(), computable(x):
        # cuDNN packs the weights of one layer of a stack again at each call, and warns each time
        warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")
        if batch_sizes is None:
            output, *new = function(x, initial, weights, *one_layer, True)
        else:
            output, *new = function(x, batch_sizes, initial, weights, *one_layer)
    return output, tuple(s.squeeze(0) for s in new)


def _function(cell: BuiltIn):  # type: ignore[no-untyped-def]  # torch._VF has no types
    if isinstance(cell, LSTMCell):
        return _VF.lstm
    if isinstance(cell, GRUCell):
        return _VF.gru
    return _VF.rnn_tanh if cell.activation is torch.tanh else _VF.rnn_relu


def _flipped(x: Tensor, job: ScanJob) -> Tensor:
    """Each sequence reversed within its length; padding stays in place."""
    if job.lengths is None:
        return x.flip(1)
    t = torch.arange(x.shape[1], device=x.device)
    lengths = job.lengths[:, None]
    index = torch.where(t < lengths, lengths - 1 - t, t)  # (B, T)
    return x.gather(1, index[..., None].expand_as(x))
