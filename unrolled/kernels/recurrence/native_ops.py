"""The native engine as a torch operator: one whole recurrence forward, and its gradients.

`torch.ops.unrolled.recurrence` takes a layer's input and weights to its output and final state. The backward pass reads
one flat buffer, `saved` (see `saved_sections`). Everything is float32 on the CPU.

B batch, T steps, D input, G gates, H units, P width of h. Rows are steps of sequences, (T·B, ·) time first; with
lengths, the longest sequence comes first and rows of padding are not written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

import unrolled.kernels._native as _native
from unrolled.cells.apart import linear
from unrolled.kernels.lengths import check_lengths
from unrolled.kernels.native_buffers import (
    Allocate,
    Sections,
    address,
    empty,
    set_addresses,
    set_buffers,
    set_sequence,
    set_sequences,
    zeros,
)
from unrolled.kernels.native_operator import Kernel, NativeOperator
from unrolled.kernels.recurrence import second_order
from unrolled.kernels.recurrence.native_cells import CELLS
from unrolled.kernels.recurrence.native_rows import RowOrder, in_memory_order, like_sequences, time_major


class RecurrenceInputs(NamedTuple):
    """A layer in one direction. The C++ job has fields of the same names; those of a cell without c are None."""

    x: Tensor  # (B, T, D)
    weight_ih: Tensor
    weight_hh: Tensor
    bias_ih: Tensor | None
    bias_hh: Tensor | None
    norm_ih: Tensor | None
    norm_hh: Tensor | None
    weight_hr: Tensor | None
    weight_peephole: Tensor | None
    norm_c: Tensor | None
    norm_c_bias: Tensor | None
    h_0: Tensor  # (B, P), as all of h; (B, H) of c
    c_0: Tensor | None
    reset_h: Tensor | None
    reset_c: Tensor | None
    probe_h: Tensor | None  # (B, T, P), zeros, whose gradient is ∂L/∂h_t
    probe_c: Tensor | None
    hidden_mask: Tensor | None
    lengths: Tensor | None
    resets: Tensor | None
    keep_h: Tensor | None  # (B, T, P), or the same rate for all
    keep_c: Tensor | None
    keep_rate_h: float
    keep_rate_c: float
    kind: int
    peephole_previous: bool
    reverse: bool
    narrow: bool
    traced: bool


class RecurrenceResults(NamedTuple):
    """Output, final state (c_n is empty for a cell without c) and the buffer for the backward pass."""

    output: Tensor  # (B, T, P)
    h_n: Tensor
    c_n: Tensor
    saved: Tensor


_WEIGHTS = ("weight_ih", "weight_hh", "bias_hh", "norm_hh", "weight_hr", "weight_peephole", "norm_c", "norm_c_bias")
_MATRICES = ("weight_ih", "weight_hh", "weight_hr")
_PROJECTION = ("projected", "mean", "inverse")  # sections that torch's layer norm of W x reads


def saved_sections(inputs: RecurrenceInputs) -> Sections:
    """The sections that a run saves."""
    batch, steps, _ = inputs.x.shape
    cell, rows, (wide, width) = CELLS[inputs.kind], batch * steps, inputs.weight_hh.shape
    hidden = wide // cell.gates
    shapes = {"gates": (rows, wide), "h_entering": (rows, width)}
    if cell.memory:
        shapes["c_entering"] = (rows, hidden)
    if cell.candidate:
        shapes["candidate"] = (rows, hidden)
    if inputs.hidden_mask is not None:
        shapes["seen"] = (rows, width)
    if inputs.norm_hh is not None:
        shapes["raw"] = (rows, wide)
    if inputs.norm_hh is not None or inputs.norm_c is not None:
        shapes["stats"] = (rows, 4)
    if inputs.weight_hr is not None:
        shapes["shown"] = (rows, hidden)
    if inputs.norm_ih is not None:
        shapes |= {"projected": (rows, wide), "mean": (rows, 1), "inverse": (rows, 1)}
    if inputs.traced and cell.memory:
        shapes["c_left"] = (rows, hidden)
    return Sections(shapes)


def _describe(inputs: RecurrenceInputs) -> tuple[_native.ScanJob, RowOrder, list[Tensor]]:
    """A job with the fields of both passes; the order and the tensors must outlive its run."""
    job, order = _native.ScanJob(), RowOrder(inputs.x, inputs.lengths)
    job.kind, job.reverse, job.narrow = inputs.kind, inputs.reverse, inputs.narrow
    job.peephole_previous = inputs.peephole_previous
    job.batch, job.steps, job.features = inputs.x.shape
    job.hidden, job.width = inputs.weight_hh.shape[0] // CELLS[inputs.kind].gates, inputs.weight_hh.shape[1]
    order.describe(job)
    alive: list[Tensor] = []
    set_addresses(job, inputs, _WEIGHTS, alive)
    set_addresses(job, inputs, ("hidden_mask", "reset_h", "reset_c"), alive)
    job.keep_rate_h, job.keep_rate_c = inputs.keep_rate_h, inputs.keep_rate_c
    set_sequences([(job.set_keep_h, inputs.keep_h), (job.set_keep_c, inputs.keep_c)], alive)
    if inputs.resets is not None:
        job.resets = inputs.resets.data_ptr()
        job.resets_batch_stride, job.resets_step_stride = inputs.resets.stride()
    if inputs.norm_ih is None:
        alive.append(set_sequence(job.set_x, inputs.x))
    return job, order, alive


def _forward(inputs: RecurrenceInputs, allocate: Allocate | None) -> RecurrenceResults:
    job, order, alive = _describe(inputs)
    parts: dict[str, Tensor] = {}
    saved = empty(0)
    if allocate is not None:
        sections = saved_sections(inputs)
        saved = allocate(sections.size)
        parts = sections.views(saved)
        job.save = True
        set_buffers(job, _of_job(parts))
    if inputs.norm_ih is not None:
        job.gates_x = address(_normed_projection(inputs, inputs.norm_ih, order, parts), alive)
    elif inputs.bias_ih is not None:
        job.bias_ih = address(inputs.bias_ih, alive)
    set_addresses(job, inputs, ("h_0", "c_0"), alive)
    output = like_sequences(inputs.x, job.width)
    set_sequence(job.set_output, output)
    h_n = empty(job.batch, job.width)
    c_n = empty(0) if inputs.c_0 is None else empty(job.batch, job.hidden)
    job.h_n, job.c_n = h_n.data_ptr(), c_n.data_ptr()
    job.forward(torch.get_num_threads())
    return RecurrenceResults(output, h_n, c_n, saved)


def _of_job(parts: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: part for name, part in parts.items() if name not in _PROJECTION}


def _normed_projection(inputs: RecurrenceInputs, gain: Tensor, order: RowOrder, parts: dict[str, Tensor]) -> Tensor:
    """g∘LN(W x) + b in rows (T·B, G·H); `parts`, if any, are filled for the backward pass."""
    if parts:
        projected = torch.mm(order.rows(inputs.x), inputs.weight_ih.t(), out=parts["projected"])
    else:
        projected = linear(order.rows(inputs.x), inputs.weight_ih)
    normed, mean, inverse = torch.native_layer_norm(projected, gain.shape, gain, inputs.bias_ih, 1e-5)
    if parts:
        parts["mean"].copy_(mean)
        parts["inverse"].copy_(inverse)
    return normed


def _backward(
    inputs: RecurrenceInputs, kept: RecurrenceResults, d: RecurrenceResults, needed: Sequence[bool]
) -> dict[str, Tensor]:
    """The gradients by name; that of x only if needed."""
    x, (needs_x, *_) = inputs.x, needed
    job, order, alive = _describe(inputs)
    parts = saved_sections(inputs).views(kept.saved)
    set_buffers(job, _of_job(parts))
    d_output: Tensor | None = d.output
    if d_output is None:
        d_output = zeros(job.width).expand(job.batch, job.steps, job.width)
    alive.append(set_sequence(job.set_d_output, d_output))
    set_addresses(job, d, ("h_n", "c_n"), alive, prefix="d_")
    found = _weight_gradients(inputs) | _state_gradients(inputs, job.hidden, job.width)
    set_buffers(job, found, prefix="d_")
    if inputs.norm_ih is not None:
        rows = job.batch * job.steps
        d_gates_x = (empty if inputs.lengths is None else zeros)(rows, inputs.weight_hh.shape[0])
        job.d_gates_x = d_gates_x.data_ptr()
    elif needs_x:
        found["x"] = like_sequences(x, x.shape[2])
        set_sequence(job.set_d_x, found["x"])
    job.backward(torch.get_num_threads())
    if inputs.norm_ih is not None:
        found |= _projection_gradients(inputs, order, parts, d_gates_x, needs_x)
    if inputs.probe_h is not None:
        _finish_probes(inputs, order, d, found)
    return found


def _weight_gradients(inputs: RecurrenceInputs) -> dict[str, Tensor]:
    """Buffers for the gradients of all weights, without W with layer norm; the kernel adds to vectors."""
    names = [*_WEIGHTS, "bias_ih"] if inputs.norm_ih is None else [*_WEIGHTS[1:], "bias_ih"]
    weights = {name: weight for name in names if (weight := getattr(inputs, name)) is not None}
    return {name: (empty if name in _MATRICES else zeros)(*weight.shape) for name, weight in weights.items()}


def _state_gradients(inputs: RecurrenceInputs, hidden: int, width: int) -> dict[str, Tensor]:
    """Buffers for the gradients of each state: before the first step, at resets, and after each step of a trace."""
    batch, steps, _ = inputs.x.shape
    found: dict[str, Tensor] = {}
    for name, size in (("h", width), ("c", hidden)) if CELLS[inputs.kind].memory else (("h", width),):
        found[f"{name}_0"] = empty(batch, size)
        if inputs.reset_h is not None:
            found[f"reset_{name}"] = zeros(batch, size)
        if inputs.probe_h is not None:
            found[f"probe_{name}"] = empty(batch * steps, size)
    return found


def _projection_gradients(
    inputs: RecurrenceInputs, order: RowOrder, parts: dict[str, Tensor], d_gates_x: Tensor, needs_x: bool
) -> dict[str, Tensor]:
    """Gradients of the layer norm of W x: its gain, W and x."""
    gain = inputs.norm_ih
    assert gain is not None
    d_projected, d_gain, _ = torch.ops.aten.native_layer_norm_backward(
        d_gates_x, parts["projected"], gain.shape, parts["mean"], parts["inverse"], gain, inputs.bias_ih,
        [True, True, False],
    )  # fmt: skip
    found = {"norm_ih": d_gain, "weight_ih": torch.mm(d_projected.t(), order.rows(inputs.x))}
    if needs_x:
        d_x = order.sequences(torch.mm(d_projected, inputs.weight_ih), inputs.x.shape[0])
        found["x"] = in_memory_order(d_x, inputs.x)
    return found


def _finish_probes(inputs: RecurrenceInputs, order: RowOrder, d: RecurrenceResults, found: dict[str, Tensor]) -> None:
    """∂L/∂state_t from rows to (B, T, ·). Padding keeps a state; in reverse it comes first."""
    batch, steps, _ = inputs.x.shape
    for probe, initial, d_final in (("probe_h", "h_0", d.h_n), ("probe_c", "c_0", d.c_n)):
        if probe not in found:
            continue
        left = order.sequences(found[probe], batch)
        still: Tensor | None = found[initial] if inputs.reverse else d_final
        if inputs.lengths is not None and still is not None:
            left = torch.where(order.mask(steps)[..., None], left, still[:, None])
        found[probe] = in_memory_order(left, inputs.x)


def _fake(inputs: RecurrenceInputs, save: bool) -> RecurrenceResults:
    x, (wide, width) = inputs.x, inputs.weight_hh.shape
    cell = CELLS[inputs.kind]
    c_n = x.new_empty(x.shape[0], wide // cell.gates) if cell.memory else x.new_empty(0)
    size = saved_sections(inputs).size if save else 0
    return RecurrenceResults(_fake_sequences(x, width), x.new_empty(x.shape[0], width), c_n, x.new_empty(size))


def _fake_gradient(inputs: RecurrenceInputs, name: str) -> Tensor:
    of: Tensor = getattr(inputs, name)
    if name in ("x", "probe_h", "probe_c"):
        return _fake_sequences(inputs.x, of.shape[2])
    return of.new_empty(of.shape)


def _fake_sequences(x: Tensor, width: int) -> Tensor:
    batch, steps = x.shape[:2]
    if time_major(x):
        return x.new_empty(steps, batch, width).transpose(0, 1)
    return x.new_empty(batch, steps, width)


def _check(inputs: RecurrenceInputs) -> None:
    if inputs.lengths is not None:
        check_lengths(inputs.lengths, inputs.x.shape[0], inputs.x.shape[1], inputs.x.device)


recurrence = NativeOperator(
    Kernel(
        "recurrence",
        "The native engine",
        RecurrenceInputs,
        RecurrenceResults,
        differentiable="probe_c",
        forward=_forward,
        backward=_backward,
        fake=_fake,
        fake_gradient=_fake_gradient,
        reference=lambda inputs: None if inputs.probe_h is not None else second_order.run_reference(inputs),
        check=_check,
    )
)
