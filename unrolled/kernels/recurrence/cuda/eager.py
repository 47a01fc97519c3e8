"""A layer of a recurrence as one function of autograd: input product, recurrence and all gradients.

Without a CUDA graph, a short sequence takes as long as Python and torch need for the calls around it. So there are few.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from unrolled.kernels.recurrence.cuda import launch, passes, products

FEW_ROWS = 2048  # up to here products side by side are faster in a graph, since none fills the GPU; else Python waits


class Layer(NamedTuple):
    """What a layer is given, as it is; states are (B, H), and None if they are zero, or there is none."""

    x: Tensor  # (B, T, D)
    weight_ih: Tensor
    weight_hh: Tensor
    bias_ih: Tensor | None
    bias_hh: Tensor | None
    peephole: Tensor | None
    h_0: Tensor | None
    c_0: Tensor | None
    reset_h: Tensor | None
    reset_c: Tensor | None


class How(NamedTuple):
    """What is no tensor with a gradient."""

    dtype: torch.dtype
    active: Tensor | None  # (B, T), True where a step is real
    lengths: Tensor | None
    resets: Tensor | None
    kind: int
    reverse: bool
    share: int


def run(layer: Layer, how: How) -> tuple[Tensor, ...]:
    """The outputs (B, T, H) and the final state."""
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in layer):
        found: tuple[Tensor, ...] = _Function.apply(how, *layer)  # type: ignore[no-untyped-call]  # torch's
    else:
        found = _forward(layer, how, save=False)[0]
    return found


class _Kept(NamedTuple):
    """For the backward pass; x is (T·B, D), and it and W may be filled up (products.py)."""

    x: Tensor
    weight_ih: Tensor
    weight_hh: Tensor
    bias_ih: Tensor | None
    bias_hh: Tensor | None
    own: Tensor | None
    c_0: Tensor | None
    reset_h: Tensor | None
    reset_c: Tensor | None
    lengths: Tensor | None
    resets: Tensor | None
    exchange: Tensor | None
    saved: Tensor | None
    memory: Tensor | None


def _forward(layer: Layer, how: How, save: bool) -> tuple[tuple[Tensor, ...], _Kept]:
    dtype, batch = how.dtype, layer.x.shape[0]
    x = layer.x
    if how.active is not None:
        x = torch.where(how.active[..., None], x, 0)  # a NaN in the padding must not reach the weights' gradients
    time_first = x.stride(0) < x.stride(1)
    x = x.transpose(0, 1).to(dtype)  # (T, B, D)
    x = x.reshape(-1, x.shape[2])
    weight_ih, weight_hh = layer.weight_ih.to(dtype), layer.weight_hh.to(dtype)
    gates = len(weight_ih)
    if products.uneven(len(x), x.shape[1], gates, x.device):
        x, weight_ih = products.filled(x), products.filled(weight_ih, rows=True)
    steps, hidden = len(x) // batch, weight_hh.shape[1]
    with launch.forked(x.device, launch.capturing(x.device)) as beside:
        with beside:
            empty = passes.new_exchange(x, steps, batch, hidden, how.kind, how.share)
        gates_x = torch.mm(x, weight_ih.t())
    if gates_x.shape[1] > gates:
        gates_x = gates_x[:, :gates]
    gates_x = gates_x.view(-1, batch, gates).transpose(0, 1)
    own = None if layer.peephole is None else layer.peephole.float()
    h_0, c_0 = (None if t is None else t.to(dtype) for t in (layer.h_0, layer.c_0))
    reset_h, reset_c = (None if t is None else t.float() for t in (layer.reset_h, layer.reset_c))
    *shown, exchange, saved, memory = passes.forward(
        gates_x, weight_hh, layer.bias_ih, layer.bias_hh, own, h_0, c_0, reset_h, reset_c,
        None, how.lengths, how.resets, how.kind, how.reverse, how.share, save, time_first,
        exchange=empty,
    )  # fmt: skip
    kept = _Kept(
        x, weight_ih, weight_hh, layer.bias_ih, layer.bias_hh, own, c_0, reset_h, reset_c, how.lengths, how.resets,
        exchange, saved, memory,
    )  # fmt: skip
    return tuple(tensor for tensor in shown if tensor is not None), kept


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, how: How, *given: Any) -> tuple[Tensor, ...]:
        layer = Layer(*given)
        shown, kept = _forward(layer, how, save=True)
        ctx.set_materialize_grads(False)
        ctx.how, ctx.dtypes = how, [None if t is None else t.dtype for t in layer]
        ctx.columns = layer.x.shape[2]
        ctx.save_for_backward(*kept)
        return shown

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # of the backward pass itself
            passes.refuse_double_backward(ctx)
        kept, how = _Kept(*ctx.saved_tensors), ctx.how
        need_x, need_weight_ih, *need = ctx.needs_input_grad[1:]
        of_states = need[4] or need[5]
        d_output, d_h_n, d_c_n = (*gradients, None)[:3]  # not every cell has a c
        assert kept.exchange is not None
        assert kept.saved is not None
        left = passes.back(
            d_output, d_h_n, d_c_n, kept.weight_hh, kept.bias_ih, kept.bias_hh, kept.own, kept.c_0, kept.reset_h,
            kept.reset_c, kept.lengths, kept.resets, kept.exchange, kept.saved, kept.memory, how.kind,
            how.reverse, how.share, of_states=of_states,
        )  # fmt: skip
        batch, gates = left.d_gates_x.shape[1:]
        flat = left.d_gates_x.flatten(0, 1)  # (T·B, G·H)
        if len(kept.weight_ih) > gates:
            flat = products.filled(flat)
        d_x = kept.x.new_empty(kept.x.shape) if need_x else None  # (T·B, D)
        d_weight_ih = None
        few = len(flat) <= FEW_ROWS
        with launch.forked(flat.device, launch.capturing(flat.device)) as beside:
            with beside:
                if d_x is not None and few:
                    torch.mm(flat, kept.weight_ih, out=d_x)
                d_bias, d_own = left.d_shared()
                d_biases = passes.of_biases(how.kind, kept.bias_ih, kept.bias_hh, d_bias, d_own)
            d_weight_hh = left.d_weight(ctx.dtypes[2] == torch.float32)
            if d_x is not None and not few:
                torch.mm(flat, kept.weight_ih, out=d_x)
            if need_weight_ih:
                d_weight_ih = products.product(flat.t(), kept.x, ctx.dtypes[1] == torch.float32)
                if d_weight_ih.shape != (gates, ctx.columns):
                    d_weight_ih = products.cut(d_weight_ih, gates, ctx.columns)
        if d_x is not None:
            d_x = d_x if d_x.shape[1] == ctx.columns else d_x[:, : ctx.columns]
            d_x = d_x.view(-1, batch, ctx.columns).transpose(0, 1)
        found = (d_x, d_weight_ih, d_weight_hh, *d_biases, d_own, *left.d_states)
        wanted = zip(found, ctx.needs_input_grad[1:], ctx.dtypes, strict=True)
        return None, *(_as(gradient, dtype) if needed else None for gradient, needed, dtype in wanted)


def _as(gradient: Tensor | None, dtype: torch.dtype | None) -> Tensor | None:
    return gradient if gradient is None or gradient.dtype == dtype or dtype is None else gradient.to(dtype)
