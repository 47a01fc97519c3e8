"""A recurrence on a GPU as an operator of torch, which torch.compile sees: what it gives, and its derivative."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from unrolled.kernels.recurrence.cuda import passes
from unrolled.kernels.recurrence.cuda.plan import BLOCK, KINDS, width_blocks

_GIVEN = """Tensor gates_x, Tensor weight, Tensor? bias_x, Tensor? bias_h, Tensor? own, Tensor h_0, Tensor? c_0,
Tensor? reset_h, Tensor? reset_c, Tensor? link, Tensor? lengths, Tensor? resets, int kind, bool reverse, int share,
bool save, bool? time_first=None, int units=0"""
_BACKWARD = """Tensor? d_output, Tensor? d_h_n, Tensor? d_c_n, Tensor weight, Tensor? bias_x, Tensor? bias_h,
Tensor? own, Tensor? c_0, Tensor? reset_h, Tensor? reset_c, Tensor? link, Tensor? lengths, Tensor? resets,
Tensor exchange, Tensor saved, Tensor memory, int kind, bool reverse, int share, int units"""


def _all_there(found: list[Tensor | None], like: Tensor) -> list[Tensor]:
    """An operator gives tensors: empty ones for what there is not."""
    return [like.new_empty(0, dtype=torch.float32) if tensor is None else tensor for tensor in found]


def _gradients(*given: Any) -> list[Tensor]:
    """Of gates_x, U, biases, own, h_0, c_0, reset_h and reset_c, from what the schema says."""
    left = passes.back(*given[:10], *given[11:])  # without the link
    found = [left.d_gates_x.transpose(0, 1), left.d_weight(wide=False), *left.d_shared(), *left.d_states]
    return _all_there(found, left.d_gates)


recurrence = torch.library.custom_op(
    "unrolled::cuda_recurrence",
    lambda *given, **more: tuple(_all_there(passes.forward(*given, **more), given[0])),
    mutates_args=(),
    schema=f"({_GIVEN}) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
recurrence_backward = torch.library.custom_op(
    "unrolled::cuda_recurrence_backward",
    _gradients,
    mutates_args=(),
    schema=f"({_BACKWARD}) -> Tensor[]",
)


@recurrence.register_fake
def _(gates_x: Tensor, weight: Tensor, *rest: Any, **more: Any) -> tuple[Tensor, ...]:
    kind, _, _, save, *_ = rest[10:]
    cell = KINDS[kind]
    batch, steps = gates_x.shape[:2]
    hidden, width = weight.shape[1], width_blocks(weight.shape[1]) * BLOCK
    made = [
        passes.like_sequences(gates_x, hidden),
        gates_x.new_empty(batch, hidden),
        gates_x.new_empty(batch, hidden) if cell.memory else None,
        gates_x.new_empty(steps * (1 + cell.twice), batch, width) if save else None,
        gates_x.new_empty(steps, batch, cell.saved * width) if save else None,
        gates_x.new_empty(steps, batch, cell.memory_width(width), dtype=torch.float32)
        if save and cell.memory
        else None,
    ]
    return tuple(_all_there(made, gates_x))


@recurrence_backward.register_fake
def _(
    d_output: Tensor | None,
    d_h_n: Tensor | None,
    d_c_n: Tensor | None,
    weight: Tensor,
    bias_x: Tensor | None,
    bias_h: Tensor | None,
    own: Tensor | None,
    c_0: Tensor | None,
    reset_h: Tensor | None,
    reset_c: Tensor | None,
    link: Tensor | None,
    lengths: Tensor | None,
    resets: Tensor | None,
    exchange: Tensor,
    saved: Tensor,
    memory: Tensor,
    kind: int,
    reverse: bool,
    share: int,
    units: int,
) -> list[Tensor]:
    cell = KINDS[kind]
    steps, batch, hidden = saved.shape[0], exchange.shape[1], weight.shape[1]

    def made(given: object, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return exchange.new_empty((0,) if given is None else shape, dtype=dtype)

    d_gates_x = exchange.new_empty(steps, batch, weight.shape[0]).transpose(0, 1)
    any_bias = bias_x if bias_x is not None else bias_h
    return [
        d_gates_x,
        torch.empty_like(weight, memory_format=torch.contiguous_format),
        made(any_bias, cell.gates, hidden),
        made(bias_h if cell.candidate else own, cell.own, hidden),
        made(True, batch, hidden, dtype=exchange.dtype),
        made(c_0, batch, hidden, dtype=exchange.dtype),
        made(reset_h, batch, hidden),
        made(reset_c, batch, hidden),
    ]


def _set_up(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.kind, ctx.reverse, ctx.share = inputs[12:15]
    ctx.units = inputs[17]
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*output[3:])
    ctx.save_for_backward(*inputs[1:5], *inputs[6:12], *output[3:])  # all but gates_x and h_0


def _recurrence_backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    found = recurrence_backward(*gradients[:3], *saved, ctx.kind, ctx.reverse, ctx.share, ctx.units)
    d_gates_x, d_weight, d_bias, d_own, *d_states = found
    biases = passes.of_biases(ctx.kind, saved[1], saved[2], d_bias, d_own)
    own = None if KINDS[ctx.kind].candidate else d_own
    given = (d_gates_x, d_weight, *biases, own, *d_states)
    needed = ctx.needs_input_grad[: len(given)]
    return *(g if need else None for g, need in zip(given, needed, strict=True)), *(None,) * 9


recurrence.register_autograd(_recurrence_backward, setup_context=_set_up)


recurrence_backward.register_autograd(passes.refuse_double_backward)


def run(
    gates_x: Tensor, weight: Tensor, bias_x: Any, bias_h: Any, own: Any, h_0: Tensor, *rest: Any, units: int
) -> tuple[Tensor, ...]:
    """`recurrence`; `rest` is without the link."""
    link = torch.cat([gates_x[:0].flatten(), h_0[:0].flatten()]) if rest[-1] else None
    found: tuple[Tensor, ...] = recurrence(
        gates_x, weight, bias_x, bias_h, own, h_0, *rest[:3], link, *rest[3:], units=units
    )
    return found
