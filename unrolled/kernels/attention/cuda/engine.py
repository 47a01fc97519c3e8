"""The `cuda` engine of decoders with attention: an NVIDIA GPU, forward and hand-written backward (docs/cuda.md)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from unrolled.cells import BuiltIn, GRUCell, LSTMCell, LuongCell, RNNCell, VisualCell
from unrolled.kernels.attention.attention_job import Attended, AttentionJob
from unrolled.kernels.attention.cuda import ops, programs
from unrolled.kernels.attention.cuda.passes import DecoderJob, DecoderNumbers, DecoderTensors
from unrolled.kernels.cuda import compiler
from unrolled.kernels.native_operator import transformed
from unrolled.kernels.recurrence.cuda import engine as recurrence
from unrolled.kernels.recurrence.cuda.constants import VECTOR
from unrolled.kernels.recurrence.cuda.plan import NUMBERS

DESCRIPTION = "CUDA kernels on an NVIDIA GPU, compiled at first use; float16 and bfloat16"
DEVICE = "cuda"


def refuses(job: AttentionJob) -> str | None:
    """The reason why this engine cannot run the job, or None."""
    device = job.gates_x.device
    if device.type != DEVICE:
        return f"it runs on an NVIDIA GPU, the input is on {device}"
    reason = refuses_decoder(job)
    if reason is not None:
        return reason
    if not torch.compiler.is_compiling():
        if transformed():
            return "it has no torch.func transforms and no forward-mode derivatives"
        if torch._C._is_tracing():
            return "torch.jit.trace records torch's own operators alone"
    if (missing := compiler.missing()) is not None:
        return missing
    major, minor = torch.cuda.get_device_capability(device)
    if major < 8:
        return f"it needs a GPU of compute capability 8.0 or newer, this one has {major}.{minor}"
    return None


def refuses_decoder(job: AttentionJob) -> str | None:
    """The reason why no GPU can run the job, or None."""
    cell, score = job.cell.cell, job.cell.score
    if isinstance(job.cell, VisualCell) and job.cell.hard:
        return "it draws no positions"
    if isinstance(job.cell, VisualCell) and score.weight_query is None:
        return "its gate is part of the query's product, and this score has none"
    if type(cell) not in (RNNCell, LSTMCell, GRUCell):
        return f"it has no cell {type(cell).__name__}"
    assert isinstance(cell, BuiltIn)
    if isinstance(cell, RNNCell):
        return "16-bit rounding grows in the decoder of a plain RNN"
    if cell.hidden_mask is not None:
        return "it has no variational dropout inside the recurrence"
    for name in ("norm_hh", "norm_c", "weight_hr"):
        if getattr(cell, name, None) is not None:
            return f"its decoders have no {name}"
    if (reason := recurrence.refuses_activations(cell)) is not None:
        return reason
    if score.heads > 1 or score.weight_out is not None:
        return "it has scores of one head, without an output projection"
    if any(mask is not None and mask.requires_grad for mask in (job.feed_mask, job.mix_mask)):
        return "it has no gradient for masks"
    return _refuses_dtypes(job) or _refuses_sizes(job)


def _refuses_dtypes(job: AttentionJob) -> str | None:
    kinds = {tensor.dtype for tensor in _tensors(job)}
    if torch.is_autocast_enabled(DEVICE):
        wanted = torch.get_autocast_dtype(DEVICE)
        if wanted not in NUMBERS:
            return f"it computes in float16 or bfloat16, autocast asks for {wanted}"
        wide = next((kind for kind in kinds if kind not in (torch.float32, *NUMBERS)), None)
        return None if wide is None else f"it computes in float16 or bfloat16, got {wide}"
    if len(kinds) > 1 or job.gates_x.dtype not in NUMBERS:
        names = ", ".join(sorted(map(str, kinds)))
        return f"it computes in float16 or bfloat16 (or float32 under autocast to one of them), got {names}"
    return None


def _refuses_sizes(job: AttentionJob) -> str | None:
    batch, positions, key = job.keys.shape
    if batch == 0:
        return "the batch is empty"
    if positions == 0:
        return "the memory is empty"
    value = job.values.shape[2]
    sizes = {"h": job.state[0].shape[1], "keys": key, "values": value, "weight_feed": job.cell.weight_feed.shape[1]}
    for name, size in sizes.items():
        if size % VECTOR:
            return f"it reads {VECTOR} numbers at once, {name} is {size} wide"
    additive = job.cell.score.vector is not None
    shared = max(programs.look_bytes(key, value, positions, additive, backward) for backward in (False, True))
    if shared > programs.MAX_SHARED_BYTES:
        return f"{positions} positions with keys of {key} and values of {value} do not fit into its shared memory"
    return None


def _tensors(job: AttentionJob) -> Iterator[Tensor]:
    """Everything with numbers but the dropout masks."""
    return (tensor for tensor in _inputs(job)[: len(ops.DIFFERENTIABLE)] if tensor is not None)


def _inputs(job: AttentionJob) -> DecoderTensors:
    cell, score = job.cell.cell, job.cell.score
    assert isinstance(cell, BuiltIn)
    luong = job.cell if isinstance(job.cell, LuongCell) else None
    gated = job.cell if isinstance(job.cell, VisualCell) else None
    return DecoderTensors(
        gates_x=job.gates_x,
        weight_hh=cell.weight_hh,
        weight_feed=job.cell.weight_feed,
        keys=job.keys,
        values=job.values,
        h_0=job.state[0],
        bias_hh=cell.bias_hh,
        peephole=getattr(cell, "weight_peephole", None),
        weight_query=score.weight_query,
        bias_query=score.bias_query if score.weight_query is not None else None,
        vector=score.vector,
        weight_mix=luong.weight_mix if luong else None,
        bias_mix=luong.bias_mix if luong else None,
        weight_gate=gated.weight_gate if gated else None,
        bias_gate=gated.bias_gate if gated else None,
        c_0=job.state[1] if isinstance(cell, LSTMCell) else None,
        fed_0=job.state[-1] if luong else None,
        mask=job.mask,
        lengths=job.lengths,
        feed_mask=job.feed_mask,
        mix_mask=job.mix_mask if luong else None,
    )


def run(job: AttentionJob) -> Attended:
    """Run every step of the decoder; results are in the input's dtype, or in autocast's."""
    if not torch.is_autocast_enabled(DEVICE):
        return _run(job, job.gates_x.dtype)
    dtype = torch.get_autocast_dtype(DEVICE)
    with torch.autocast(DEVICE, enabled=False):
        return _run(job, dtype)


def _run(job: AttentionJob, dtype: torch.dtype) -> Attended:
    decoder = operator_inputs(job, dtype)
    seen = ops.run(decoder)
    c_n, fed_n = (seen.c_n,) if decoder.kind.cell_state else (), (seen.fed_n,) if decoder.luong else ()
    return Attended(seen.output, seen.context, seen.weights, (seen.h_n, *c_n, *fed_n))


def operator_inputs(job: AttentionJob, dtype: torch.dtype) -> DecoderJob:
    """The inputs of the operator for a job."""
    cell = job.cell.cell
    assert isinstance(cell, BuiltIn)
    settings = DecoderNumbers(recurrence.kind_of(cell), job.cell.score.scale, dtype == torch.float16)
    return DecoderJob(_inputs(job), settings)
