"""The recurrence as a torch operator, which torch.compile can trace.

Its arguments are the fields of `Recurrence`, one by one: a schema has no structures.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from unrolled.kernels.recurrence.cuda import passes
from unrolled.kernels.recurrence.cuda.passes import Recurrence, Saved, Settings, Tensors
from unrolled.kernels.recurrence.cuda.plan import padded_size

_TYPES = {"Tensor": "Tensor", "Tensor | None": "Tensor?", "int": "int", "bool": "bool"}


def _arguments(structure: type) -> str:
    """The fields of a structure as a schema."""
    kinds = {name: str(getattr(kind, "__forward_arg__", kind)) for name, kind in structure.__annotations__.items()}
    return ", ".join(f"{_TYPES[kind]} {name}" for name, kind in kinds.items())


_JOB = f"{_arguments(Tensors)}, {_arguments(Settings)}"
_FORWARD = f"Tensor gates_x, Tensor? link, bool save, {_JOB}"
_BACKWARD = f"""Tensor? d_output, Tensor? d_h_n, Tensor? d_c_n, Tensor? link, Tensor exchange, Tensor gates,
Tensor cell_states, {_JOB}"""


def _recurrence(values: tuple[Any, ...]) -> Recurrence:
    count = len(Tensors._fields)
    return Recurrence(Tensors(*values[:count]), Settings(*values[count:]))


def _present(results: Iterable[Tensor | None], like: Tensor) -> list[Tensor]:
    """An operator returns tensors: empty ones in place of None."""
    return [like.new_empty(0, dtype=torch.float32) if tensor is None else tensor for tensor in results]


def _forward(gates_x: Tensor, link: Tensor | None, save: bool, *values: Any) -> tuple[Tensor, ...]:
    output, h_n, c_n, saved = passes.forward(_recurrence(values), gates_x, save)
    return tuple(_present((output, h_n, c_n, *(saved or (None, None, None))), gates_x))


def _backward(d_output: Any, d_h_n: Any, d_c_n: Any, link: Any, *rest: Any) -> list[Tensor]:
    """The gradients of gates_x, U, biases, unit weights, h_0, c_0, reset_h and reset_c."""
    saved, values = Saved(*rest[: len(Saved._fields)]), rest[len(Saved._fields) :]
    left = passes.backward(_recurrence(values), d_output, (d_h_n, d_c_n), saved)
    found = (left.d_gates_x.transpose(0, 1), left.d_weight(wide=False), *left.d_shared(), *left.d_states)
    return _present(found, left.d_gates)


recurrence = torch.library.custom_op(
    "unrolled::cuda_recurrence",
    _forward,
    mutates_args=(),
    schema=f"({_FORWARD}) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
recurrence_backward = torch.library.custom_op(
    "unrolled::cuda_recurrence_backward",
    _backward,
    mutates_args=(),
    schema=f"({_BACKWARD}) -> Tensor[]",
)


@recurrence.register_fake
def _(gates_x: Tensor, link: Tensor | None, save: bool, *values: Any) -> tuple[Tensor, ...]:
    job = _recurrence(values)
    cell, hidden, padded = job.cell, job.hidden, padded_size(job.hidden)
    batch, steps = gates_x.shape[:2]
    made = [
        passes.like_sequences(gates_x, hidden),
        gates_x.new_empty(batch, hidden),
        gates_x.new_empty(batch, hidden) if cell.cell_state else None,
        gates_x.new_empty(steps * (1 + cell.two_products), batch, padded) if save else None,
        gates_x.new_empty(steps, batch, cell.saved * padded) if save else None,
        gates_x.new_empty(steps, batch, cell.cell_state_size(padded), dtype=torch.float32)
        if save and cell.cell_state
        else None,
    ]
    return tuple(_present(made, gates_x))


@recurrence_backward.register_fake
def _(d_output: Any, d_h_n: Any, d_c_n: Any, link: Any, *rest: Any) -> list[Tensor]:
    saved, values = Saved(*rest[: len(Saved._fields)]), rest[len(Saved._fields) :]
    job, exchange = _recurrence(values), saved.exchange
    cell, tensors = job.cell, job.tensors
    steps, batch, hidden = saved.gates.shape[0], exchange.shape[1], job.hidden

    def made(of: object, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return exchange.new_empty((0,) if of is None else shape, dtype=dtype)

    return [
        exchange.new_empty(steps, batch, cell.gates * hidden).transpose(0, 1),
        torch.empty_like(tensors.weight, memory_format=torch.contiguous_format),
        made(tensors.bias_h if tensors.bias_x is None else tensors.bias_x, cell.gates, hidden),
        made(tensors.bias_h if cell.separate_candidate else tensors.unit_weights, cell.unit_weights, hidden),
        made(True, batch, hidden, dtype=exchange.dtype),
        made(tensors.c_0, batch, hidden, dtype=exchange.dtype),
        made(tensors.reset_h, batch, hidden),
        made(tensors.reset_c, batch, hidden),
    ]


def _set_up(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, link, _, *values = inputs
    tensors, ctx.settings = _recurrence(tuple(values))
    ctx.set_materialize_grads(False)
    saved = output[-len(Saved._fields) :]
    ctx.mark_non_differentiable(*saved)
    ctx.save_for_backward(link, *saved, *tensors._replace(h_0=None))


def _recurrence_backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    kept = ctx.saved_tensors
    tensors = Tensors(*kept[-len(Tensors._fields) :])
    job = Recurrence(tensors, ctx.settings)
    found = recurrence_backward(*gradients[: -len(Saved._fields)], *kept, *ctx.settings)
    d_gates_x, d_weight, d_bias, d_unit_weights, *d_states = found
    biases = passes.bias_gradients(job, d_bias, d_unit_weights)
    own = None if job.cell.separate_candidate else d_unit_weights
    of_tensors = d_weight, *biases, own, *d_states, None, None  # in the order of `Tensors`
    everything = (d_gates_x, None, None, *of_tensors, *(None for _ in ctx.settings))
    return tuple(g if need else None for g, need in zip(everything, ctx.needs_input_grad, strict=True))


recurrence.register_autograd(_recurrence_backward, setup_context=_set_up)
recurrence_backward.register_autograd(passes.refuse_double_backward)


def run(job: Recurrence, gates_x: Tensor, save: bool) -> tuple[Tensor, ...]:
    """`recurrence`: output, h_n, c_n, and the buffers of `Saved`.

    The link has no numbers: it ties the backward pass to gates_x and h_0, which it does not read, so that a second
    derivative is an error and not silently zero.
    """
    h_0 = job.tensors.h_0
    assert h_0 is not None
    link = torch.cat([gates_x[:0].flatten(), h_0[:0].flatten()]) if save else None
    results: tuple[Tensor, ...] = recurrence(gates_x, link, save, *job.tensors, *job.settings)
    return results
