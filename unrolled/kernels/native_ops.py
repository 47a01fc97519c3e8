"""The native engine as torch operators: one whole recurrence forward, and back.

`torch.ops.unrolled.recurrence` takes a layer's input and weights to its output and final state; what the backward pass
needs comes out as one flat buffer, `saved` (see `Sections`). Everything is float32 on the CPU.

B batch, T steps, D input, G gates, H units, P width of h. Rows are steps of sequences, (B·T, ·) in whichever order the
input has in memory; with lengths, the real steps alone, packed as torch packs them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor

from unrolled.errors import UserError
from unrolled.kernels import _native

try:
    ISA: str = _native.isa()
except ValueError as error:
    raise UserError(str(error)) from None
THREADING: str = _native.threading()

RNN_TANH, RNN_RELU, LSTM, GRU_RESET_AFTER, GRU_RESET_BEFORE = range(5)
GATES = (1, 1, 4, 3, 3)

fill_with_nan = os.environ.get("UNROLLED_NAN_BUFFERS") == "1"
"""Tests set this: fresh buffers are filled with NaN, so that a value read before it is written is seen."""


def _empty(*shape: int) -> Tensor:
    fresh = torch.empty(shape, dtype=torch.float32, device="cpu")
    return fresh.fill_(float("nan")) if fill_with_nan else fresh


@dataclass(frozen=True)
class Sections:
    """What `saved` holds, in order: name → shape of each section, (B·T, ·) rows all of them."""

    shapes: dict[str, tuple[int, int]]

    @property
    def size(self) -> int:
        return sum(prod(shape) for shape in self.shapes.values())

    def views(self, saved: Tensor) -> dict[str, Tensor]:
        """Each section as a matrix."""
        found, start = {}, 0
        for name, shape in self.shapes.items():
            found[name] = saved[start : start + prod(shape)].view(shape)
            start += prod(shape)
        return found


def sections(
    x: Tensor,
    weight_hh: Tensor,
    kind: int,
    *,
    lengths: bool,
    norm_ih: bool,
    norm_hh: bool,
    norm_c: bool,
    weight_hr: bool,
    hidden_mask: bool,
    traced: bool,
) -> Sections:
    """The sections that a recurrence with these options saves."""
    batch, steps, features = x.shape
    rows, (wide, width) = batch * steps, weight_hh.shape
    hidden = wide // GATES[kind]
    shapes = {"gates": (rows, wide), "h_entering": (rows, width)}
    if kind == LSTM:
        shapes["c_entering"] = (rows, hidden)
    if kind in (GRU_RESET_AFTER, GRU_RESET_BEFORE):
        shapes["candidate"] = (rows, hidden)
    if hidden_mask:
        shapes["seen"] = (rows, width)
    if norm_hh:
        shapes["raw"] = (rows, wide)
    if norm_hh or norm_c:
        shapes["stats"] = (rows, 4)
    if weight_hr:
        shapes["shown"] = (rows, hidden)
    if lengths:
        shapes["x"] = (rows, features)
    if norm_ih:
        shapes |= {"projected": (rows, wide), "mean": (rows, 1), "inverse": (rows, 1)}
    if traced and kind == LSTM:
        shapes["c_left"] = (rows, hidden)
    return Sections(shapes)


def _time_major(x: Tensor) -> bool:
    """Whether x (B, T, ·) lies in memory time first; one sequence or one step lies both ways."""
    return not x.is_contiguous() and x.transpose(0, 1).is_contiguous()


class _Rows:
    """Where the steps of the sequences are in the rows, and x in that order."""

    def __init__(self, x: Tensor, lengths: Tensor | None, job: _native.ScanJob) -> None:
        batch, steps, features = x.shape
        self.time_major = _time_major(x)
        flat = (x.transpose(0, 1) if self.time_major else x).reshape(batch * steps, features)
        self.index: Tensor | None = None
        if lengths is None:
            self.x = flat
            job.step_stride, job.row_stride = (batch, 1) if self.time_major else (1, steps)
            return
        self._lengths = lengths.contiguous()
        self._order, self._active, self._step_row, index = torch.empty(
            batch + 2 * steps + batch * steps, dtype=torch.int64
        ).split([batch, steps, steps, batch * steps])
        strides = (1, batch) if self.time_major else (steps, 1)
        arrays = (self._order.data_ptr(), self._active.data_ptr(), self._step_row.data_ptr(), index.data_ptr())
        count = _native.lay_out_rows(self._lengths.data_ptr(), batch, steps, *strides, *arrays)
        self.index = index[:count]
        self.x = flat  # the caller gathers: it knows where to
        job.lengths = self._lengths.data_ptr()
        job.order, job.active, job.step_row = arrays[:3]

    def unpacked(self, rows: Tensor, shape: tuple[int, int]) -> Tensor:
        """(N, ·) rows as (B, T, ·); zero where there is no row."""
        batch, steps = shape
        if self.index is not None:
            full = rows.new_zeros(batch * steps, rows.shape[1])
            rows = full.index_copy_(0, self.index, rows[: len(self.index)])
        if self.time_major:
            return rows.view(steps, batch, -1).transpose(0, 1)
        return rows.view(batch, steps, -1)


def unpacked(rows: Tensor, x: Tensor, lengths: Tensor | None) -> Tensor:
    """A section's rows as (B, T, ·), zero in the padding."""
    return _Rows(x, lengths, _native.ScanJob()).unpacked(rows, (x.shape[0], x.shape[1]))


def _like_sequences(x: Tensor, width: int) -> Tensor:
    """A fresh (B, T, width) in the memory order of x."""
    batch, steps = x.shape[:2]
    if _time_major(x):
        return _empty(steps, batch, width).transpose(0, 1)
    return _empty(batch, steps, width)


def _zeros(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.float32, device="cpu")


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _contiguous(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def _set_sequence(setter, tensor: Tensor | None) -> None:  # type: ignore[no-untyped-def]  # a bound C++ method
    if tensor is not None:
        setter(tensor.data_ptr(), tensor.stride(0), tensor.stride(1))


def _forward(
    x: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor | None,
    bias_hh: Tensor | None,
    norm_ih: Tensor | None,
    norm_hh: Tensor | None,
    weight_hr: Tensor | None,
    weight_peephole: Tensor | None,
    norm_c: Tensor | None,
    norm_c_bias: Tensor | None,
    h_0: Tensor,
    c_0: Tensor | None,
    reset_h: Tensor | None,
    reset_c: Tensor | None,
    probe_h: Tensor | None,
    probe_c: Tensor | None,
    hidden_mask: Tensor | None,
    lengths: Tensor | None,
    resets: Tensor | None,
    keep_h: Tensor | None,
    keep_c: Tensor | None,
    keep_rate_h: float,
    keep_rate_c: float,
    kind: int,
    peephole_previous: bool,
    reverse: bool,
    save: bool,
    traced: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Output (B, T, P), final h (B, P), final c (B, H) or nothing, and what is saved."""
    batch, steps, _ = x.shape
    job = _native.ScanJob()
    rows = _Rows(x, lengths, job)
    keep_alive = _describe(
        job, x, weight_hh, bias_hh, norm_hh, weight_hr, weight_peephole, norm_c, norm_c_bias, reset_h, reset_c,
        hidden_mask, resets, keep_h, keep_c, keep_rate_h, keep_rate_c, kind, peephole_previous, reverse,
    )  # fmt: skip
    hidden, width = job.hidden, job.width
    count = batch * steps if rows.index is None else len(rows.index)
    saved = _empty(0)
    parts: dict[str, Tensor] = {}
    if save:
        layout = sections(
            x, weight_hh, kind, lengths=lengths is not None, norm_ih=norm_ih is not None, norm_hh=norm_hh is not None,
            norm_c=norm_c is not None, weight_hr=weight_hr is not None, hidden_mask=hidden_mask is not None,
            traced=traced,
        )  # fmt: skip
        saved = _empty(layout.size)
        parts = layout.views(saved)
    x_rows = rows.x
    if rows.index is not None:
        x_rows = torch.index_select(rows.x, 0, rows.index, out=parts["x"][:count] if save else None)
    gates = _project(x_rows, weight_ih, bias_ih, norm_ih, {name: part[:count] for name, part in parts.items()})
    job.gates = gates.data_ptr()
    job.save = save
    output = _like_sequences(x, width)
    h_n = _empty(batch, width)
    c_n = _empty(batch, hidden) if kind == LSTM else _empty(0)
    h_0, c_0 = h_0.contiguous(), _contiguous(c_0)
    _set_sequence(job.set_output, output)
    h, c = job.h, job.c
    h.initial, h.final, h.entering = h_0.data_ptr(), h_n.data_ptr(), _address(parts.get("h_entering"))
    if c_0 is not None:
        c.initial, c.final, c.entering = c_0.data_ptr(), c_n.data_ptr(), _address(parts.get("c_entering"))
        c.left = _address(parts.get("c_left"))
    for name in ("candidate", "seen", "raw", "stats", "shown"):
        if name in parts:
            setattr(job, name, parts[name].data_ptr())
    job.forward(torch.get_num_threads())
    del keep_alive
    return output, h_n, c_n, saved


def _project(
    x: Tensor, weight: Tensor, bias: Tensor | None, gain: Tensor | None, parts: dict[str, Tensor]
) -> Tensor:
    """W x + b, or g∘LN(W x) + b, of rows (N, D), into the saved sections if there are any."""
    out = parts.get("gates" if gain is None else "projected")
    if gain is not None or bias is None:
        projected = torch.mm(x, weight.t(), out=out)
    else:
        projected = torch.addmm(bias, x, weight.t(), out=out)
    if gain is None:
        return projected
    normed, mean, inverse = torch.native_layer_norm(projected, gain.shape, gain, bias, 1e-5)
    if not parts:
        return normed
    parts["mean"].copy_(mean)
    parts["inverse"].copy_(inverse)
    return parts["gates"].copy_(normed)


def _describe(
    job: _native.ScanJob,
    x: Tensor,
    weight_hh: Tensor,
    bias_hh: Tensor | None,
    norm_hh: Tensor | None,
    weight_hr: Tensor | None,
    weight_peephole: Tensor | None,
    norm_c: Tensor | None,
    norm_c_bias: Tensor | None,
    reset_h: Tensor | None,
    reset_c: Tensor | None,
    hidden_mask: Tensor | None,
    resets: Tensor | None,
    keep_h: Tensor | None,
    keep_c: Tensor | None,
    keep_rate_h: float,
    keep_rate_c: float,
    kind: int,
    peephole_previous: bool,
    reverse: bool,
) -> list[Tensor | None]:
    """Fills in what forward and backward have in common; the tensors returned must live until the job has run."""
    job.kind, job.reverse, job.peephole_previous = kind, reverse, peephole_previous
    job.batch, job.steps = x.shape[:2]
    job.hidden, job.width = weight_hh.shape[0] // GATES[kind], weight_hh.shape[1]
    given = {
        "weight_hh": weight_hh,
        "bias_hh": bias_hh,
        "norm_hh": norm_hh,
        "weight_hr": weight_hr,
        "peephole": weight_peephole,
        "norm_c": norm_c,
        "norm_c_bias": norm_c_bias,
        "hidden_mask": hidden_mask,
    }
    alive: list[Tensor | None] = []
    for name, tensor in given.items():
        if tensor is not None:
            tensor = tensor.contiguous()
            setattr(job, name, tensor.data_ptr())
            alive.append(tensor)
    for state, reset, keep, rate in ((job.h, reset_h, keep_h, keep_rate_h), (job.c, reset_c, keep_c, keep_rate_c)):
        if reset is not None:
            reset = reset.contiguous()
            state.reset = reset.data_ptr()
        if keep is not None:
            keep = keep if keep.stride(-1) == 1 else keep.contiguous()
            _set_sequence(state.set_keep, keep)
        elif rate:
            state.keep_rate = rate
        alive += [reset, keep]
    if resets is not None:
        job.resets = resets.data_ptr()
        job.resets_batch_stride, job.resets_step_stride = resets.stride()
    return alive


def _backward(
    d_output: Tensor | None,
    d_h_n: Tensor | None,
    d_c_n: Tensor | None,
    saved: Tensor,
    x: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor | None,
    bias_hh: Tensor | None,
    norm_ih: Tensor | None,
    norm_hh: Tensor | None,
    weight_hr: Tensor | None,
    weight_peephole: Tensor | None,
    norm_c: Tensor | None,
    norm_c_bias: Tensor | None,
    reset_h: Tensor | None,
    reset_c: Tensor | None,
    hidden_mask: Tensor | None,
    lengths: Tensor | None,
    resets: Tensor | None,
    keep_h: Tensor | None,
    keep_c: Tensor | None,
    keep_rate_h: float,
    keep_rate_c: float,
    kind: int,
    peephole_previous: bool,
    reverse: bool,
    traced: bool,
    x_needs_gradient: bool,
    probed: bool,
) -> list[Tensor]:
    """Gradients of x, the weights (in the order of `_forward`), h_0, c_0, reset_h, reset_c, probe_h and probe_c.

    A gradient of something that was not given, or is not needed, is an empty tensor.
    """
    batch, steps, _ = x.shape
    job = _native.ScanJob()
    rows = _Rows(x, lengths, job)
    keep_alive = _describe(
        job, x, weight_hh, bias_hh, norm_hh, weight_hr, weight_peephole, norm_c, norm_c_bias, reset_h, reset_c,
        hidden_mask, resets, keep_h, keep_c, keep_rate_h, keep_rate_c, kind, peephole_previous, reverse,
    )  # fmt: skip
    hidden, width = job.hidden, job.width
    count = batch * steps if rows.index is None else len(rows.index)
    layout = sections(
        x, weight_hh, kind, lengths=lengths is not None, norm_ih=norm_ih is not None, norm_hh=norm_hh is not None,
        norm_c=norm_c is not None, weight_hr=weight_hr is not None, hidden_mask=hidden_mask is not None, traced=traced,
    )  # fmt: skip
    parts = {name: part[:count] for name, part in layout.views(saved).items()}
    if d_output is None:
        d_output = _zeros(width).expand(batch, steps, width)
    elif d_output.stride(-1) != 1:
        d_output = d_output.contiguous()
    _set_sequence(job.set_d_output, d_output)
    for name in ("gates", "candidate", "seen", "raw", "stats", "shown"):
        if name in parts:
            setattr(job, name, parts[name].data_ptr())
    wide = weight_hh.shape[0]
    d_gates = _empty(count, wide)
    job.d_gates = d_gates.data_ptr()
    d_recurrent = d_gates
    if norm_hh is not None:
        d_recurrent = _empty(count, wide)
        job.d_recurrent = d_recurrent.data_ptr()
    elif kind == GRU_RESET_AFTER:
        d_recurrent = _empty(count, hidden)
        job.d_recurrent = d_recurrent.data_ptr()
    d_hidden = None
    if weight_hr is not None:
        d_hidden = _empty(count, width)
        job.d_hidden = d_hidden.data_ptr()
    sums = {  # summed into
        "d_bias_ih": bias_ih,
        "d_bias_hh": bias_hh,
        "d_norm_hh": norm_hh,
        "d_peephole": weight_peephole,
        "d_norm_c": norm_c,
        "d_norm_c_bias": norm_c_bias,
    }
    nothing = _empty(0)
    found = {name: nothing if of is None else _zeros(*of.shape) for name, of in sums.items()}
    for name, tensor in found.items():
        if tensor is not nothing:
            setattr(job, name, tensor.data_ptr())
    d_initial, d_reset, d_left = [nothing, nothing], [nothing, nothing], [nothing, nothing]
    states = [(job.h, "h_entering", width, d_h_n, reset_h), (job.c, "c_entering", hidden, d_c_n, reset_c)]
    for i, (state, entering, size, d_final, reset) in enumerate(states[: 2 if kind == LSTM else 1]):
        state.entering = parts[entering].data_ptr()
        d_initial[i] = _empty(batch, size)
        state.d_initial = d_initial[i].data_ptr()
        if d_final is not None:
            d_final = d_final.contiguous()
            state.d_final = d_final.data_ptr()
            keep_alive.append(d_final)
        if reset is not None:
            d_reset[i] = _zeros(batch, size)
            state.d_reset = d_reset[i].data_ptr()
        if probed:
            d_left[i] = _empty(count, size)
            state.d_left = d_left[i].data_ptr()
    job.backward(torch.get_num_threads())
    del keep_alive
    if probed:
        finals = (d_h_n, d_c_n)
        d_left = [
            _with_padding(rows.unpacked(d, (batch, steps)), d_initial[i] if reverse else finals[i], lengths)
            if d is not nothing else d
            for i, d in enumerate(d_left)
        ]  # fmt: skip
    x_rows = parts.get("x", rows.x)
    seen = parts.get("seen", parts["h_entering"])
    d_projected, d_norm_ih = d_gates, nothing
    if norm_ih is not None:
        d_projected, d_norm_ih, _ = torch.ops.aten.native_layer_norm_backward(
            d_gates, parts["projected"], norm_ih.shape, parts["mean"], parts["inverse"], norm_ih, bias_ih,
            [True, True, False],
        )  # fmt: skip
    d_x = rows.unpacked(torch.mm(d_projected, weight_ih), (batch, steps)) if x_needs_gradient else nothing
    d_weight_ih = torch.mm(d_projected.t(), x_rows)
    d_weight_hh = _d_weight_hh(kind, hidden, norm_hh is not None, d_gates, d_recurrent, seen, parts.get("candidate"))
    d_weight_hr = torch.mm(d_hidden.t(), parts["shown"]) if d_hidden is not None else nothing
    gradients = [
        d_x, d_weight_ih, d_weight_hh, found["d_bias_ih"], found["d_bias_hh"], d_norm_ih, found["d_norm_hh"], d_weight_hr,
        found["d_peephole"], found["d_norm_c"], found["d_norm_c_bias"], *d_initial, *d_reset, *d_left,
    ]  # fmt: skip
    return [_empty(0) if g is nothing else g for g in gradients]  # an operator's results may not be one tensor


def _with_padding(real: Tensor, frozen: Tensor | None, lengths: Tensor | None) -> Tensor:
    """(B, T, ·) with what holds for the frozen state past each length."""
    if lengths is None or frozen is None:
        return real
    active = torch.arange(real.shape[1]) < lengths[:, None]
    return torch.where(active[..., None], real, frozen[:, None])


def _d_weight_hh(
    kind: int, hidden: int, normed: bool, d_gates: Tensor, d_recurrent: Tensor, seen: Tensor, candidate: Tensor | None
) -> Tensor:
    """U's gradient: one product over all steps, or two where the candidate of a GRU goes its own way."""
    if kind == GRU_RESET_AFTER and not normed:
        gradient = _empty(3 * hidden, seen.shape[1])
        torch.mm(d_gates[:, : 2 * hidden].t(), seen, out=gradient[: 2 * hidden])
        torch.mm(d_recurrent.t(), seen, out=gradient[2 * hidden :])
        return gradient
    if kind == GRU_RESET_BEFORE:
        assert candidate is not None
        gradient = _empty(3 * hidden, seen.shape[1])
        torch.mm(d_recurrent[:, : 2 * hidden].t(), seen, out=gradient[: 2 * hidden])
        torch.mm(d_recurrent[:, 2 * hidden :].t(), candidate, out=gradient[2 * hidden :])
        return gradient
    return torch.mm(d_recurrent.t(), seen)


_GIVEN = """Tensor x, Tensor weight_ih, Tensor weight_hh, Tensor? bias_ih, Tensor? bias_hh, Tensor? norm_ih,
Tensor? norm_hh, Tensor? weight_hr, Tensor? weight_peephole, Tensor? norm_c, Tensor? norm_c_bias"""
_RUN = """Tensor? hidden_mask, Tensor? lengths, Tensor? resets, Tensor? keep_h, Tensor? keep_c, float keep_rate_h,
float keep_rate_c, int kind, bool peephole_previous, bool reverse"""
_FORWARD_SCHEMA = f"""({_GIVEN}, Tensor h_0, Tensor? c_0, Tensor? reset_h, Tensor? reset_c, Tensor? probe_h,
Tensor? probe_c, {_RUN}, bool save, bool traced) -> (Tensor, Tensor, Tensor, Tensor)"""
_BACKWARD_SCHEMA = f"""(Tensor? d_output, Tensor? d_h_n, Tensor? d_c_n, Tensor saved, {_GIVEN}, Tensor? reset_h,
Tensor? reset_c, {_RUN}, bool traced, bool x_needs_gradient, bool probed) -> Tensor[]"""

recurrence = torch.library.custom_op("unrolled::recurrence", _forward, mutates_args=(), schema=_FORWARD_SCHEMA)
recurrence_backward = torch.library.custom_op(
    "unrolled::recurrence_backward", _backward, mutates_args=(), schema=_BACKWARD_SCHEMA
)

_DIFFERENTIABLE = 17  # the first inputs of `_forward`: x, the weights, the states and the probes


@recurrence.register_fake
def _(x: Tensor, weight_ih: Tensor, weight_hh: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    given = dict(zip(_FORWARD_NAMES[3:], rest, strict=True))
    batch, steps, _ = x.shape
    wide, width = weight_hh.shape
    kind = given["kind"]
    size = sections(x, weight_hh, kind, **_options(given)).size if given["save"] else 0
    if _time_major(x):
        output = x.new_empty(steps, batch, width).transpose(0, 1)
    else:
        output = x.new_empty(batch, steps, width)
    c_n = x.new_empty(batch, wide // GATES[kind]) if kind == LSTM else x.new_empty(0)
    return output, x.new_empty(batch, width), c_n, x.new_empty(size)


@recurrence_backward.register_fake
def _(*inputs: Any) -> list[Tensor]:
    given = dict(zip(_BACKWARD_NAMES, inputs, strict=True))
    x, weight_hh, kind = given["x"], given["weight_hh"], given["kind"]
    batch, steps, features = x.shape
    hidden, width = weight_hh.shape[0] // GATES[kind], weight_hh.shape[1]

    def like(name: str) -> Tensor:
        return x.new_empty(0 if given[name] is None else given[name].shape)

    def sequences(wanted: bool, size: int) -> Tensor:
        if not wanted:
            return x.new_empty(0)
        time_major = _time_major(x)
        return x.new_empty(steps, batch, size).transpose(0, 1) if time_major else x.new_empty(batch, steps, size)

    lstm = kind == LSTM
    return [
        sequences(given["x_needs_gradient"], features),
        *(like(name) for name in _FORWARD_NAMES[1:11]),
        x.new_empty(batch, width),
        x.new_empty(batch, hidden) if lstm else x.new_empty(0),
        like("reset_h"),
        like("reset_c"),
        sequences(given["probed"], width),
        sequences(given["probed"] and lstm, hidden),
    ]


def _options(given: dict[str, Any]) -> dict[str, bool]:
    """What `sections` wants to know, from an operator's arguments."""
    asked = ("lengths", "norm_ih", "norm_hh", "norm_c", "weight_hr", "hidden_mask")
    return {name: given[name] is not None for name in asked} | {"traced": given["traced"]}


def _names(schema: str) -> list[str]:
    return [argument.split()[-1] for argument in schema.split(") ->")[0].strip("(").split(",")]


_FORWARD_NAMES, _BACKWARD_NAMES = _names(_FORWARD_SCHEMA), _names(_BACKWARD_SCHEMA)


def _set_up(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[3])
    tensors = [*inputs[:11], *inputs[13:15], *inputs[17:22]]
    ctx.save_for_backward(output[3], *tensors)
    ctx.options = (*inputs[22:27], inputs[28])  # keep rates, kind, peephole_previous, reverse; traced
    ctx.probed = inputs[15] is not None
    ctx.saving = inputs[27]


def _pull_back(ctx: Any, call: Callable[..., list[Tensor]], *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    saved, *tensors = ctx.saved_tensors
    d_output, d_h_n, d_c_n, _ = gradients
    if ctx.probed and d_output is None and d_h_n is None and d_c_n is None:
        return (None,) * 29
    found = call(
        d_output, d_h_n, d_c_n, saved, *tensors, *ctx.options, ctx.needs_input_grad[0], ctx.probed
    )
    needed = ctx.needs_input_grad[:_DIFFERENTIABLE]
    return *(g if need else None for g, need in zip(found, needed, strict=True)), *(None,) * (29 - _DIFFERENTIABLE)


def _recurrence_backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    return _pull_back(ctx, recurrence_backward, *gradients)


recurrence.register_autograd(_recurrence_backward, setup_context=_set_up)


def _refuse_double_backward(ctx: Any, *gradients: object) -> None:
    raise UserError(
        "The native engine has no second derivative.",
        "Use backend='reference', which has derivatives of any order.",
    )


recurrence_backward.register_autograd(_refuse_double_backward)


class _Eager(torch.autograd.Function):
    """The operator without the dispatcher, which costs more than a short recurrence itself."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return _forward(*inputs)

    setup_context = staticmethod(_set_up)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        return _pull_back(ctx, _EagerBackward.apply if torch.is_grad_enabled() else _backward, *gradients)


class _EagerBackward(torch.autograd.Function):
    """The backward pass where its own derivative is asked for: there is none, and the error says so."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, ...]:
        return tuple(_backward(*inputs))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        pass

    backward = staticmethod(_refuse_double_backward)


def run_recurrence(*inputs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`torch.ops.unrolled.recurrence`, by the shortest way."""
    if torch.compiler.is_compiling() or type(inputs[0]) not in (Tensor, torch.nn.Parameter):
        return recurrence(*inputs)
    if inputs[-2]:  # save
        return _Eager.apply(*inputs)
    return _forward(*inputs)
