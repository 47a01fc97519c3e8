"""The native engine as torch operators: one whole recurrence forward, and back.

`torch.ops.unrolled.recurrence` takes a layer's input and weights to its output and final state; what the backward pass
needs comes out as one flat buffer, `saved` (see `Sections`). Everything is float32 on the CPU.

B batch, T steps, D input, G gates, H units, P width of h. Rows are steps of sequences, (T·B, ·) time first; with
lengths, the longest sequence comes first and rows of padding are not written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

import unrolled.kernels._native as _native  # as a module of its own: where it was not built, the error names it
from unrolled.errors import UserError
from unrolled.kernels.recurrence import second_order
from unrolled.kernels.recurrence.native_buffers import (
    GATES,
    LSTM,
    Lease,
    Order,
    empty,
    like_sequences,
    sections,
    time_major,
    zeros,
)

try:
    ISA: str = _native.isa()
except ValueError as error:
    raise UserError(str(error)) from None
ISAS: list[str] = _native.isas()
THREADING: str = _native.threading()
NARROW: bool = _native.narrow()  # whether this processor multiplies bfloat16
# whether this torch has the table through which steps look at tensors and make them (native/runtime/tensors.h)
TAKES_TENSORS: bool = _native.connect(torch.Tensor, getattr(torch.Tensor, "__dlpack_c_exchange_api__", None))


def address(tensor: Tensor, alive: list[Tensor]) -> int:
    """The address of a contiguous tensor, which is kept in `alive` for as long as the address is used."""
    if not tensor.is_contiguous():
        tensor = tensor.contiguous()
    alive.append(tensor)
    return tensor.data_ptr()


def set_sequence(setter: Callable[[int, int, int], None], tensor: Tensor) -> Tensor:
    """Hands over a (B, T, ·) tensor with its strides; the tensor returned must live until the job has run."""
    if tensor.stride(-1) != 1:
        tensor = tensor.contiguous()
    setter(tensor.data_ptr(), tensor.stride(0), tensor.stride(1))
    return tensor


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
    narrow: bool,
    save: bool,
    traced: bool,
    allocate: Callable[[int], Tensor] = empty,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Output (B, T, P), final h (B, P), final c (B, H) or nothing, and what is saved."""
    batch = x.shape[0]
    job, order = _native.ScanJob(), Order(x, lengths)
    alive = _describe(
        job, order, x, weight_ih, weight_hh, bias_hh, norm_hh, weight_hr, weight_peephole, norm_c, norm_c_bias, reset_h,
        reset_c, hidden_mask, resets, keep_h, keep_c, keep_rate_h, keep_rate_c, kind, peephole_previous, reverse,
        narrow,
    )  # fmt: skip
    parts: dict[str, Tensor] = {}
    saved = empty(0)
    if save:
        layout = sections(
            x, weight_hh, kind, norm_ih=norm_ih is not None, norm_hh=norm_hh is not None, norm_c=norm_c is not None,
            weight_hr=weight_hr is not None, hidden_mask=hidden_mask is not None, traced=traced,
        )  # fmt: skip
        saved = allocate(layout.size)
        parts = layout.views(saved)
        job.save = True
        for name in ("gates", "candidate", "seen", "raw", "stats", "shown"):
            if name in parts:
                setattr(job, name, parts[name].data_ptr())
    if norm_ih is None:
        alive += [set_sequence(job.set_x, x)]
        if bias_ih is not None:
            job.bias_ih = address(bias_ih, alive)
    else:
        gates_x = _normed_projection(order.rows(x), weight_ih, bias_ih, norm_ih, parts)
        job.gates_x = address(gates_x, alive)
    output = like_sequences(x, job.width)
    set_sequence(job.set_output, output)
    h_n = empty(batch, job.width)
    c_n = empty(batch, job.hidden) if kind == LSTM else empty(0)
    for name, state, initial, final in (("h", job.h, h_0, h_n), ("c", job.c, c_0, c_n)):
        if initial is not None:
            state.initial, state.final = address(initial, alive), final.data_ptr()
            if save:
                state.entering = parts[f"{name}_entering"].data_ptr()
            if f"{name}_left" in parts:
                state.left = parts[f"{name}_left"].data_ptr()
    job.forward(torch.get_num_threads())
    return output, h_n, c_n, saved


def _normed_projection(
    rows: Tensor, weight: Tensor, bias: Tensor | None, gain: Tensor, parts: dict[str, Tensor]
) -> Tensor:
    """g∘LN(W x) + b of rows (T·B, D); what its backward pass needs goes into the saved sections, if there are any."""
    projected = torch.mm(rows, weight.t(), out=parts.get("projected"))
    normed, mean, inverse = torch.native_layer_norm(projected, gain.shape, gain, bias, 1e-5)
    if parts:
        parts["mean"].copy_(mean)
        parts["inverse"].copy_(inverse)
    return normed


def _describe(
    job: _native.ScanJob,
    order: Order,
    x: Tensor,
    weight_ih: Tensor,
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
    narrow: bool,
) -> list[Tensor]:
    """Fills in what forward and backward have in common; the tensors returned must live until the job has run."""
    job.kind, job.reverse, job.peephole_previous, job.narrow = kind, reverse, peephole_previous, narrow
    job.batch, job.steps, job.features = x.shape
    job.hidden, job.width = weight_hh.shape[0] // GATES[kind], weight_hh.shape[1]
    order.describe(job)
    alive: list[Tensor] = []
    job.weight_ih, job.weight_hh = address(weight_ih, alive), address(weight_hh, alive)
    if bias_hh is not None:
        job.bias_hh = address(bias_hh, alive)
    if norm_hh is not None:
        job.norm_hh = address(norm_hh, alive)
    if weight_hr is not None:
        job.weight_hr = address(weight_hr, alive)
    if weight_peephole is not None:
        job.peephole = address(weight_peephole, alive)
    if norm_c is not None:
        job.norm_c = address(norm_c, alive)
    if norm_c_bias is not None:
        job.norm_c_bias = address(norm_c_bias, alive)
    if hidden_mask is not None:
        job.hidden_mask = address(hidden_mask, alive)
    for state, reset, keep, rate in ((job.h, reset_h, keep_h, keep_rate_h), (job.c, reset_c, keep_c, keep_rate_c)):
        if reset is not None:
            state.reset = address(reset, alive)
        if keep is not None:
            alive.append(set_sequence(state.set_keep, keep))
        elif rate:
            state.keep_rate = rate
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
    narrow: bool,
    traced: bool,
    x_needs_gradient: bool,
    probed: bool,
) -> list[Tensor]:
    """Gradients of x, the weights (in the order of `_forward`), h_0, c_0, reset_h, reset_c, probe_h and probe_c.

    A gradient of something that was not given, or is not needed, is an empty tensor.
    """
    batch, steps, _ = x.shape
    job, order = _native.ScanJob(), Order(x, lengths)
    alive = _describe(
        job, order, x, weight_ih, weight_hh, bias_hh, norm_hh, weight_hr, weight_peephole, norm_c, norm_c_bias, reset_h,
        reset_c, hidden_mask, resets, keep_h, keep_c, keep_rate_h, keep_rate_c, kind, peephole_previous, reverse,
        narrow,
    )  # fmt: skip
    hidden, width = job.hidden, job.width
    layout = sections(
        x, weight_hh, kind, norm_ih=norm_ih is not None, norm_hh=norm_hh is not None, norm_c=norm_c is not None,
        weight_hr=weight_hr is not None, hidden_mask=hidden_mask is not None, traced=traced,
    )  # fmt: skip
    parts = layout.views(saved)
    for name in ("gates", "candidate", "seen", "raw", "stats", "shown"):
        if name in parts:
            setattr(job, name, parts[name].data_ptr())
    if d_output is None:
        d_output = zeros(width).expand(batch, steps, width)
    alive.append(set_sequence(job.set_d_output, d_output))

    nothing = empty(0)
    d_x = d_norm_ih = nothing
    given = {"d_weight_ih": weight_ih if norm_ih is None else None, "d_bias_ih": bias_ih, "d_weight_hh": weight_hh}
    given |= {"d_bias_hh": bias_hh, "d_norm_hh": norm_hh, "d_weight_hr": weight_hr}
    given |= {"d_peephole": weight_peephole, "d_norm_c": norm_c, "d_norm_c_bias": norm_c_bias}
    found = _wanted_weights(job, given, nothing)
    if norm_ih is None:
        alive.append(set_sequence(job.set_x, x))
        if x_needs_gradient:
            d_x = like_sequences(x, x.shape[2])
            set_sequence(job.set_d_x, d_x)
    else:
        d_gates_x = (empty if lengths is None else zeros)(batch * steps, weight_hh.shape[0])
        job.d_gates_x = d_gates_x.data_ptr()
    states = [_StateJob(job.h, parts["h_entering"], width, d_h_n, reset_h)]
    if kind == LSTM:
        states.append(_StateJob(job.c, parts["c_entering"], hidden, d_c_n, reset_c))
    d_states = [_wanted_state(state, batch, batch * steps if probed else None, alive, nothing) for state in states]
    job.backward(torch.get_num_threads())

    if probed:
        for state, d_state in zip(states, d_states, strict=True):
            # padding leaves a state alone; backwards, it comes first
            still = d_state.initial if reverse else state.d_final
            left = order.sequences(d_state.left, batch)
            if lengths is not None and still is not None:
                left = torch.where(order.mask(steps)[..., None], left, still[:, None])
            d_state.left = _as_laid_out(left, x)
    if norm_ih is not None:
        d_projected, d_norm_ih, _ = torch.ops.aten.native_layer_norm_backward(
            d_gates_x, parts["projected"], norm_ih.shape, parts["mean"], parts["inverse"], norm_ih, bias_ih,
            [True, True, False],
        )  # fmt: skip
        found["d_weight_ih"] = torch.mm(d_projected.t(), order.rows(x))
        if x_needs_gradient:
            d_x = _as_laid_out(order.sequences(torch.mm(d_projected, weight_ih), batch), x)
    d_h, d_c = [*d_states, _StateGradients(nothing, nothing, nothing)][:2]
    gradients = [
        d_x, found["d_weight_ih"], found["d_weight_hh"], found["d_bias_ih"], found["d_bias_hh"], d_norm_ih,
        found["d_norm_hh"], found["d_weight_hr"], found["d_peephole"], found["d_norm_c"], found["d_norm_c_bias"],
        d_h.initial, d_c.initial, d_h.reset, d_c.reset, d_h.left, d_c.left,
    ]  # fmt: skip
    return [empty(0) if g is nothing else g for g in gradients]  # an operator's results may not be one tensor


class _StateJob(NamedTuple):
    """One of a cell's states on the way back."""

    native: Any  # the engine's own description
    entering: Tensor
    size: int
    d_final: Tensor | None
    reset: Tensor | None


@dataclass
class _StateGradients:
    """Of a state: as it enters the first step, where it is reset, and, if it is probed, as it leaves each step."""

    initial: Tensor
    reset: Tensor
    left: Tensor


def _wanted_weights(job: Any, given: dict[str, Tensor | None], nothing: Tensor) -> dict[str, Tensor]:
    """Room for the gradient of every weight there is, and the engine told of it; `nothing` for the others."""
    found = dict.fromkeys(given, nothing)
    for name, weight in given.items():
        if weight is not None:
            found[name] = (empty if name.startswith("d_weight") else zeros)(*weight.shape)  # vectors are summed into
            setattr(job, name, found[name].data_ptr())
    return found


def _wanted_state(
    state: _StateJob, batch: int, probed: int | None, alive: list[Tensor], nothing: Tensor
) -> _StateGradients:
    """The same for a state, of which so many rows are probed."""
    native, size = state.native, state.size
    found = _StateGradients(empty(batch, size), nothing, nothing)
    native.entering, native.d_initial = state.entering.data_ptr(), found.initial.data_ptr()
    if state.d_final is not None:
        native.d_final = address(state.d_final, alive)
    if state.reset is not None:
        found.reset = zeros(batch, size)
        native.d_reset = found.reset.data_ptr()
    if probed is not None:
        found.left = empty(probed, size)
        native.d_left = found.left.data_ptr()
    return found


def _as_laid_out(sequences: Tensor, x: Tensor) -> Tensor:
    """(B, T, ·) in the memory order of x, which is what the operator's fake twin promises."""
    if time_major(x):
        return sequences.transpose(0, 1).contiguous().transpose(0, 1)
    return sequences.contiguous()


_GIVEN = """Tensor x, Tensor weight_ih, Tensor weight_hh, Tensor? bias_ih, Tensor? bias_hh, Tensor? norm_ih,
Tensor? norm_hh, Tensor? weight_hr, Tensor? weight_peephole, Tensor? norm_c, Tensor? norm_c_bias"""
_RUN = """Tensor? hidden_mask, Tensor? lengths, Tensor? resets, Tensor? keep_h, Tensor? keep_c, float keep_rate_h,
float keep_rate_c, int kind, bool peephole_previous, bool reverse, bool narrow"""
_FORWARD_SCHEMA = f"""({_GIVEN}, Tensor h_0, Tensor? c_0, Tensor? reset_h, Tensor? reset_c, Tensor? probe_h,
Tensor? probe_c, {_RUN}, bool save, bool traced) -> (Tensor, Tensor, Tensor, Tensor)"""
_BACKWARD_SCHEMA = f"""(Tensor? d_output, Tensor? d_h_n, Tensor? d_c_n, Tensor saved, {_GIVEN}, Tensor? reset_h,
Tensor? reset_c, {_RUN}, bool traced, bool x_needs_gradient, bool probed) -> Tensor[]"""

recurrence = torch.library.custom_op(
    "unrolled::recurrence", lambda *inputs: _forward(*inputs), mutates_args=(), schema=_FORWARD_SCHEMA
)
recurrence_backward = torch.library.custom_op(
    "unrolled::recurrence_backward", _backward, mutates_args=(), schema=_BACKWARD_SCHEMA
)

_DIFFERENTIABLE = 17  # the first inputs of `_forward`: x, the weights, the states and the probes


@recurrence.register_fake
def _(x: Tensor, weight_ih: Tensor, weight_hh: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    given = dict(zip(_FORWARD_NAMES[3:], rest, strict=True))
    batch = x.shape[0]
    wide, width = weight_hh.shape
    kind = given["kind"]
    size = sections(x, weight_hh, kind, **_options(given)).size if given["save"] else 0
    output = _fake_sequences(x, width)
    c_n = x.new_empty(batch, wide // GATES[kind]) if kind == LSTM else x.new_empty(0)
    return output, x.new_empty(batch, width), c_n, x.new_empty(size)


@recurrence_backward.register_fake
def _(*inputs: Any) -> list[Tensor]:
    given = dict(zip(_BACKWARD_NAMES, inputs, strict=True))
    x: Tensor = given["x"]
    weight_hh: Tensor = given["weight_hh"]
    kind: int = given["kind"]
    batch, _, features = x.shape
    hidden, width = weight_hh.shape[0] // GATES[kind], weight_hh.shape[1]

    def like(name: str) -> Tensor:
        of: Tensor | None = given[name]
        return nothing() if of is None else of.new_empty(of.shape)

    def nothing() -> Tensor:
        return weight_hh.new_empty(0)

    lstm = kind == LSTM
    return [
        _fake_sequences(x, features) if given["x_needs_gradient"] else nothing(),
        *(like(name) for name in _FORWARD_NAMES[1:11]),
        x.new_empty(batch, width),
        x.new_empty(batch, hidden) if lstm else nothing(),
        like("reset_h"),
        like("reset_c"),
        _fake_sequences(x, width) if given["probed"] else nothing(),
        _fake_sequences(x, hidden) if given["probed"] and lstm else nothing(),
    ]


def _fake_sequences(x: Tensor, width: int) -> Tensor:
    batch, steps = x.shape[:2]
    if time_major(x):
        return x.new_empty(steps, batch, width).transpose(0, 1)
    return x.new_empty(batch, steps, width)


def _options(given: dict[str, Any]) -> dict[str, bool]:
    """What `sections` wants to know, from an operator's arguments."""
    asked = ("norm_ih", "norm_hh", "norm_c", "weight_hr", "hidden_mask")
    return {name: given[name] is not None for name in asked} | {"traced": given["traced"]}


def names_of(schema: str) -> list[str]:
    """The names of an operator's arguments."""
    return [argument.split()[-1] for argument in schema.split(") ->")[0].strip("(").split(",")]


_FORWARD_NAMES, _BACKWARD_NAMES = names_of(_FORWARD_SCHEMA), names_of(_BACKWARD_SCHEMA)


def _set_up(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...], saved: Tensor | None = None) -> None:
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[3])
    tensors = [*inputs[:15], *inputs[17:22]]  # all but the probes
    ctx.kept = saved  # not seen from outside; otherwise it is among the results
    ctx.save_for_backward(output[3] if saved is None else None, *tensors)
    ctx.options = (*inputs[22:28], inputs[29])  # keep rates, kind, peephole_previous, reverse, narrow; traced
    ctx.probed = inputs[15] is not None


def _pull_back(ctx: Any, call: Callable[..., Sequence[Tensor]], *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    saved, *tensors = ctx.saved_tensors
    saved = ctx.kept if saved is None else saved
    d_output, d_h_n, d_c_n, _ = gradients
    given = (*tensors[:11], *tensors[13:])  # without the initial states
    found = call(d_output, d_h_n, d_c_n, saved, *given, *ctx.options, ctx.needs_input_grad[0], ctx.probed)
    needed = ctx.needs_input_grad[:_DIFFERENTIABLE]
    none_of_others = (None,) * (len(ctx.needs_input_grad) - _DIFFERENTIABLE)
    return *(g if need else None for g, need in zip(found, needed, strict=True)), *none_of_others


def _recurrence_backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    return _pull_back(ctx, recurrence_backward, *gradients)


recurrence.register_autograd(_recurrence_backward, setup_context=_set_up)


def refuse_double_backward(ctx: Any, *gradients: object) -> None:
    """The derivative of a backward pass of this engine that was compiled, traced by `layer.trace`, or is another's."""
    raise UserError(
        "The native engine has no second derivative.",
        "Use backend='reference', which has derivatives of any order.",
    )


recurrence_backward.register_autograd(refuse_double_backward)


def differentiable_once(run: Callable[..., Sequence[Tensor]]) -> Callable[..., Sequence[Tensor]]:
    """A backward pass as it is, or, where its own derivative is asked for, one that says that there is none."""

    class Last(torch.autograd.Function):
        @staticmethod
        def forward(*inputs: Any) -> tuple[Tensor, ...]:
            return tuple(run(*inputs))

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
            pass

        backward = staticmethod(refuse_double_backward)

    def call(*inputs: Any) -> Sequence[Tensor]:
        if not torch.is_grad_enabled():
            return run(*inputs)
        found: tuple[Tensor, ...] = Last.apply(*inputs)  # type: ignore[no-untyped-call]  # torch's
        return found

    return call


class _Eager(torch.autograd.Function):
    """The operator without the dispatcher, which costs more than a short recurrence itself."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        traced = inputs[-1]  # a trace shows what is saved: it keeps it
        ctx.lease = Lease()
        forward: Callable[..., tuple[Tensor, Tensor, Tensor, Tensor]] = _forward
        results = forward(*inputs, allocate=empty if traced else ctx.lease.allocate)
        _set_up(ctx, inputs, results, saved=results[3])
        return *results[:3], results[3] if traced else empty(0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled() and not ctx.probed:  # create_graph=True
            return _pull_back_differentiably(ctx, *gradients)
        return _pull_back(ctx, _eager_backward, *gradients)


def _pull_back_differentiably(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    """The same gradients by way of the `reference` engine, whose own derivatives are of any order."""
    _, *tensors = ctx.saved_tensors
    others = dict(zip(_FORWARD_NAMES[17:28], (*tensors[15:], *ctx.options), strict=False))

    def run(given: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return second_order.run_reference(dict(zip(_FORWARD_NAMES[:15], given, strict=True)) | others)

    found = second_order.gradients(run, tensors[:15], ctx.needs_input_grad[:15], gradients[:3])
    return *found, *(None,) * (len(ctx.needs_input_grad) - len(found))


_eager_backward = differentiable_once(_backward)


def run_recurrence(*inputs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`torch.ops.unrolled.recurrence`, by the shortest way."""
    results: tuple[Tensor, Tensor, Tensor, Tensor]
    if torch.compiler.is_compiling() or type(inputs[0]) not in (Tensor, torch.nn.Parameter):
        results = recurrence(*inputs)
    elif inputs[-2]:  # save
        results = _Eager.apply(*inputs)  # type: ignore[no-untyped-call]  # torch's
    else:
        results = _forward(*inputs)
    return results
