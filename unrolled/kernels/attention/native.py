"""Decoders with attention on the `native` engine: C++ on a CPU, forward and backward (docs/attention.md)."""

from __future__ import annotations

import platform
from collections.abc import Iterator

import torch
from torch import Tensor

from unrolled.cells import BuiltIn, LSTMCell, LuongCell, Score, VisualCell
from unrolled.cells.apart import row_engine
from unrolled.kernels.attention import native_ops as ops
from unrolled.kernels.attention.attention_job import Attended, AttentionJob
from unrolled.kernels.native_core import ISA, NARROW
from unrolled.kernels.native_operator import transformed
from unrolled.kernels.recurrence.native import AUTOCAST, in_float32
from unrolled.kernels.recurrence.native_cells import kind_of, refuses_cell

DESCRIPTION = f"C++ on a CPU, {ISA} kernels; float32; RNN, LSTM and GRU without layer norm"
DEVICE = "cpu"


def refuses(job: AttentionJob) -> str | None:
    """The reason why this engine cannot run the job, or None."""
    cell, score = job.cell.cell, job.cell.score
    if isinstance(job.cell, VisualCell):
        return "it has no gate on the context"
    reason = refuses_cell(cell)
    if reason is not None:
        return reason
    assert isinstance(cell, BuiltIn)
    for name in ("norm_hh", "norm_c", "weight_hr", "weight_peephole"):
        if getattr(cell, name, None) is not None:
            return f"its decoders have no {name}"
    if score.heads > 1 and score.vector is not None:
        return "it has additive scores of one head"
    accepted = AUTOCAST if torch.is_autocast_enabled("cpu") else (torch.float32,)
    for tensor in _tensors(job):
        if tensor.device.type != "cpu":
            return f"it runs on a CPU, got a tensor on {tensor.device}"
        if tensor.dtype not in accepted:
            return f"it computes in float32, got {tensor.dtype}"
    if job.gates_x.shape[0] == 0:
        return "the batch is empty"
    if not torch.compiler.is_compiling() and transformed():
        return "it has no torch.func transforms and no forward-mode derivatives"
    masks = (cell.hidden_mask, job.feed_mask, job.mix_mask)
    if any(mask is not None and mask.requires_grad for mask in masks):
        return "it has no gradient for masks"
    return None


def outdone(job: AttentionJob) -> str | None:
    """The reason why the loop in torch is faster, or None.

    Measured on 2 cores with AVX-512 (benchmarks/attention_scan.py): packing the weights pays from the second step on.
    """
    batch, steps = job.gates_x.shape[:2]
    hidden = job.state[0].shape[1]
    if row_engine() is not None:
        return None
    if steps == 1 or (batch * steps < _ROWS and hidden > _WIDE):
        return "torch is faster for few steps"
    if ISA == "plain" and platform.machine() in ("x86_64", "AMD64") and hidden >= _WIDE:
        return "torch is faster than its plain kernels"
    return None


_ROWS, _WIDE = 4, 512


def _tensors(job: AttentionJob) -> Iterator[Tensor]:
    """Everything that is read as float32."""
    cell, score = job.cell.cell, job.cell.score
    assert isinstance(cell, BuiltIn)
    yield from (job.gates_x, job.keys, job.values, *job.state)
    optional = [job.feed_mask, job.mix_mask, cell.hidden_mask, cell.weight_hh, cell.bias_hh, job.cell.weight_feed]
    optional += [score.weight_query, score.bias_query, score.vector, score.weight_out, score.bias_out]
    if isinstance(job.cell, LuongCell):
        optional += [job.cell.weight_mix, job.cell.bias_mix]
    yield from (tensor for tensor in optional if tensor is not None)


class NativeScore(Score):
    """A score on this engine: in float32 on a CPU, without derivatives."""

    def look(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        return ops.look(self, query.float(), keys.float(), values.float(), mask)


def run(job: AttentionJob) -> Attended:
    """Run every step of the decoder.

    Under autocast its results stay float32; its products are in bfloat16 if that is the dtype and the processor has an
    instruction for them.
    """
    if not torch.is_autocast_enabled("cpu"):
        return _run(job, narrow=False)
    narrow = NARROW and torch.get_autocast_dtype("cpu") == torch.bfloat16
    with torch.autocast("cpu", enabled=False):
        return _run(in_float32(job), narrow)


def _run(job: AttentionJob, narrow: bool) -> Attended:
    inputs = operator_inputs(job, narrow)
    seen = ops.attention(inputs)
    c_n, fed_n = (seen.c_n,) if inputs.c_0 is not None else (), (seen.fed_n,) if inputs.luong else ()
    return Attended(seen.output, seen.context, seen.weights, (seen.h_n, *c_n, *fed_n))


def operator_inputs(job: AttentionJob, narrow: bool = False) -> ops.DecoderInputs:
    """The inputs of the operator for a job."""
    cell, score = job.cell.cell, job.cell.score
    assert isinstance(cell, BuiltIn)
    kind = kind_of(cell)
    assert kind is not None
    luong = job.cell if isinstance(job.cell, LuongCell) else None
    return ops.DecoderInputs(
        gates_x=job.gates_x,
        weight_hh=cell.weight_hh,
        bias_hh=cell.bias_hh,
        weight_feed=job.cell.weight_feed,
        weight_query=score.weight_query,
        bias_query=score.bias_query,
        weight_out=score.weight_out,
        bias_out=score.bias_out,
        vector=score.vector,
        weight_mix=luong.weight_mix if luong else None,
        bias_mix=luong.bias_mix if luong else None,
        keys=job.keys,
        values=job.values,
        h_0=job.state[0],
        c_0=job.state[1] if isinstance(cell, LSTMCell) else None,
        fed_0=job.state[-1] if luong else None,
        mask=job.mask,
        hidden_mask=cell.hidden_mask,
        feed_mask=job.feed_mask,
        mix_mask=job.mix_mask if luong else None,
        lengths=job.lengths,
        scale=score.scale,
        kind=kind,
        heads=score.heads,
        luong=luong is not None,
        narrow=narrow,
    )
