"""A layer of a recurrence as one autograd function: input product, recurrence and all gradients.

Without a CUDA graph, a short sequence takes as long as the Python and torch calls around it, so there are few of them.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unrolled.kernels.cuda.products import product
from unrolled.kernels.native_operator import gradients_by
from unrolled.kernels.recurrence.cuda import launch, passes, products, second_order
from unrolled.kernels.recurrence.cuda.passes import Recurrence, Saved, Settings, Tensors

FEW_ROWS = 2048  # up to here no product fills the GPU: in a CUDA graph they run side by side


class LayerInputs(NamedTuple):
    """The tensors of a layer that can have gradients; states are (B, H), None if zero or absent."""

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


class LayerSettings(NamedTuple):
    """Everything else."""

    dtype: torch.dtype
    active: Tensor | None  # (B, T), True where a step is not padding
    lengths: Tensor | None
    resets: Tensor | None
    recurrence: Settings


def run(layer: LayerInputs, settings: LayerSettings) -> tuple[Tensor, ...]:
    """The outputs (B, T, H) and the final state."""
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in layer):
        found: tuple[Tensor, ...] = _Function.apply(settings, *layer)  # type: ignore[no-untyped-call]  # torch's
        return found
    return _shown(_forward(layer, settings, save=False)[0])


class _Projected(NamedTuple):
    """The operands of the input product, which may have padding (products.py)."""

    x: Tensor  # (T·B, D)
    weight_ih: Tensor


def _forward(
    layer: LayerInputs, settings: LayerSettings, save: bool
) -> tuple[passes.ForwardResults, _Projected, Tensors]:
    dtype, batch = settings.dtype, layer.x.shape[0]
    x = layer.x
    if settings.active is not None:
        x = torch.where(settings.active[..., None], x, 0)  # a NaN in the padding must not reach the weights' gradients
    time_first = x.stride(0) < x.stride(1)
    x = x.transpose(0, 1).to(dtype)  # (T, B, D)
    x = x.reshape(-1, x.shape[2])
    weight_ih, weight_hh = layer.weight_ih.to(dtype), layer.weight_hh.to(dtype)
    gates = len(weight_ih)
    if products.worth_padding(len(x), x.shape[1], gates, x.device):
        x, weight_ih = products.padded(x), products.padded(weight_ih, rows=True)
    tensors = Tensors(
        weight=weight_hh,
        bias_x=layer.bias_ih,
        bias_h=layer.bias_hh,
        unit_weights=_as(layer.peephole, torch.float32),
        h_0=_as(layer.h_0, dtype),
        c_0=_as(layer.c_0, dtype),
        reset_h=_as(layer.reset_h, torch.float32),
        reset_c=_as(layer.reset_c, torch.float32),
        lengths=settings.lengths,
        resets=settings.resets,
    )
    job = Recurrence(tensors, settings.recurrence)
    with launch.forked(x.device, launch.capturing(x.device)) as beside:
        with beside:
            exchange = passes.new_exchange(job, x, len(x) // batch, batch)
        gates_x = torch.mm(x, weight_ih.t())
    if gates_x.shape[1] > gates:
        gates_x = gates_x[:, :gates]
    gates_x = gates_x.view(-1, batch, gates).transpose(0, 1)
    return passes.forward(job, gates_x, save, time_first, exchange), _Projected(x, weight_ih), tensors


def _shown(results: passes.ForwardResults) -> tuple[Tensor, ...]:
    output, h_n, c_n, _ = results
    return (output, h_n) if c_n is None else (output, h_n, c_n)


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, settings: LayerSettings, *inputs: Any) -> tuple[Tensor, ...]:
        layer = LayerInputs(*inputs)
        results, projected, tensors = _forward(layer, settings, save=True)
        assert results.saved is not None
        ctx.set_materialize_grads(False)
        ctx.settings = settings
        ctx.dtypes = {name: None if t is None else t.dtype for name, t in layer._asdict().items()}
        ctx.columns = layer.x.shape[2]
        ctx.save_for_backward(*layer, *projected, *results.saved, *tensors._replace(h_0=None))
        return _shown(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        count = len(LayerInputs._fields)
        if torch.is_grad_enabled():  # of the backward pass itself
            run = partial(_by_reference, ctx.settings)
            found = gradients_by(run, ctx.saved_tensors[:count], gradients, ctx.needs_input_grad[1:])
            assert found is not None
            return None, *found
        x, weight_ih, exchange, saved_gates, cell_states, *tensors = ctx.saved_tensors[count:]
        job = Recurrence(Tensors(*tensors), ctx.settings.recurrence)
        need = LayerInputs(*ctx.needs_input_grad[1:])
        d_output, d_h_n, d_c_n = (*gradients, None)[:3]  # not every cell has a c
        saved, of_states = Saved(exchange, saved_gates, cell_states), bool(need.h_0 or need.c_0)
        left = passes.backward(job, d_output, (d_h_n, d_c_n), saved, of_states)
        batch, gates = left.d_gates_x.shape[1:]
        flat = left.d_gates_x.flatten(0, 1)  # (T·B, G·H)
        if len(weight_ih) > gates:
            flat = products.padded(flat)
        d_x = x.new_empty(x.shape) if need.x else None  # (T·B, D)
        d_weight_ih = None
        few = len(flat) <= FEW_ROWS
        with launch.forked(flat.device, launch.capturing(flat.device)) as beside:
            with beside:
                if d_x is not None and few:
                    torch.mm(flat, weight_ih, out=d_x)
                d_bias, d_unit_weights = left.d_shared()
                d_biases = passes.bias_gradients(job, d_bias, d_unit_weights)
            d_weight_hh = left.d_weight(ctx.dtypes["weight_hh"] == torch.float32)
            if d_x is not None and not few:
                torch.mm(flat, weight_ih, out=d_x)
            if need.weight_ih:
                d_weight_ih = product(flat.t(), x, ctx.dtypes["weight_ih"] == torch.float32)
                if d_weight_ih.shape != (gates, ctx.columns):
                    d_weight_ih = products.cut(d_weight_ih, gates, ctx.columns)
        if d_x is not None:
            d_x = d_x if d_x.shape[1] == ctx.columns else d_x[:, : ctx.columns]
            d_x = d_x.view(-1, batch, ctx.columns).transpose(0, 1)
        made = (d_x, d_weight_ih, d_weight_hh, *d_biases, d_unit_weights, *left.d_states)
        wanted = zip(made, need, ctx.dtypes.values(), strict=True)
        return None, *(_as(gradient, dtype) if needed else None for gradient, needed, dtype in wanted)


def _by_reference(settings: LayerSettings, *layer: Any) -> tuple[Tensor, ...]:
    return second_order.run_reference(LayerInputs(*layer), settings)


def _as(tensor: Tensor | None, dtype: torch.dtype | None) -> Tensor | None:
    return tensor if tensor is None or tensor.dtype == dtype or dtype is None else tensor.to(dtype)
