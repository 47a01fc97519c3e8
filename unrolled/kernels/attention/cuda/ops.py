"""Decoders with attention on the cuda engine as a torch operator, which torch.compile can trace.

Its arguments are the fields of `DecoderTensors` and `DecoderNumbers`, one by one: a schema has no structures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unrolled.kernels.attention.cuda import passes, second_order
from unrolled.kernels.attention.cuda.passes import DecoderJob, DecoderNumbers, DecoderSaved, DecoderTensors, Results
from unrolled.kernels.native_operator import gradients_by
from unrolled.kernels.recurrence.cuda.passes import refuse_double_backward

_TYPES = {"Tensor": "Tensor", "Tensor | None": "Tensor?", "int": "int", "bool": "bool", "float": "float"}
DIFFERENTIABLE = DecoderTensors._fields[: DecoderTensors._fields.index("mask")]


def _arguments(structure: type, prefix: str = "", optional: bool = False) -> str:
    """The fields of a structure as a schema."""
    kinds = {name: str(getattr(kind, "__forward_arg__", kind)) for name, kind in structure.__annotations__.items()}
    return ", ".join(f"{_TYPES[kind]}{'?' if optional else ''} {prefix}{name}" for name, kind in kinds.items())


_JOB = f"{_arguments(DecoderTensors)}, {_arguments(DecoderNumbers)}"
_MADE = ", ".join(["Tensor"] * (len(Results._fields) + len(DecoderSaved._fields)))


def _decoder(values: tuple[Any, ...]) -> DecoderJob:
    count = len(DecoderTensors._fields)
    return DecoderJob(DecoderTensors(*values[:count]), DecoderNumbers(*values[count:]))


def _forward(save: bool, *values: Any) -> tuple[Tensor, ...]:
    results, saved = passes.forward(_decoder(values), save)
    return (*results, *saved)


def _backward(*values: Any) -> list[Tensor]:
    """The gradients of DIFFERENTIABLE in their order and dtypes; empty where there is none."""
    d_results, (output, *rest) = values[: len(Results._fields)], values[len(Results._fields) :]
    saved, job = DecoderSaved(*rest[: len(DecoderSaved._fields)]), _decoder(tuple(rest[len(DecoderSaved._fields) :]))
    found = passes.backward(job, d_results, output, saved)
    gradients = []
    for name in DIFFERENTIABLE:
        tensor, gradient = getattr(job.tensors, name), found.get(name)
        if tensor is None or gradient is None:
            gradients.append(output.new_empty(0))
        else:
            gradients.append(gradient.to(tensor.dtype).contiguous())
    return gradients


attention = torch.library.custom_op(
    "unrolled::cuda_attention", _forward, mutates_args=(), schema=f"(bool save, {_JOB}) -> ({_MADE})"
)
attention_backward = torch.library.custom_op(
    "unrolled::cuda_attention_backward",
    _backward,
    mutates_args=(),
    schema=f"({_arguments(Results, 'd_', optional=True)}, Tensor output, {_arguments(DecoderSaved, 'kept_')}, {_JOB}) "
    "-> Tensor[]",
)


@attention.register_fake
def _(save: bool, *values: Any) -> tuple[Tensor, ...]:
    job = _decoder(values)
    return (*job.results(), *job.saved(save))


@attention_backward.register_fake
def _(*values: Any) -> list[Tensor]:
    output, *rest = values[len(Results._fields) :]
    job = _decoder(tuple(rest[len(DecoderSaved._fields) :]))
    given = [getattr(job.tensors, name) for name in DIFFERENTIABLE]
    return [output.new_empty(0) if tensor is None else tensor.new_empty(tensor.shape) for tensor in given]


def _set_up(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    tensors, ctx.settings = _decoder(tuple(inputs[1:]))
    ctx.set_materialize_grads(False)
    saved = output[len(Results._fields) :]
    ctx.mark_non_differentiable(*saved)
    ctx.save_for_backward(output[0], *saved, *tensors)


def _attention_backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    found: Sequence[Tensor | None] | None
    if torch.is_grad_enabled():  # of the backward pass itself
        tensors = DecoderTensors(*ctx.saved_tensors[-len(DecoderTensors._fields) :])
        rest = tensors[len(DIFFERENTIABLE) :]
        found = gradients_by(
            lambda *given: second_order.run_reference(DecoderTensors(*given, *rest), ctx.settings),
            tensors,
            gradients,
            ctx.needs_input_grad[1 : 1 + len(DIFFERENTIABLE)],
        )
        assert found is not None
    else:
        found = attention_backward(*gradients[: len(Results._fields)], *ctx.saved_tensors, *ctx.settings)
    others = len(DecoderTensors._fields) - len(DIFFERENTIABLE) + len(ctx.settings)
    everything = (None, *found, *(None for _ in range(others)))
    return tuple(g if need else None for g, need in zip(everything, ctx.needs_input_grad, strict=True))


attention.register_autograd(_attention_backward, setup_context=_set_up)
attention_backward.register_autograd(refuse_double_backward)


def run(job: DecoderJob) -> Results:
    """All steps of a decoder, with a gradient where one is wanted."""
    given = [getattr(job.tensors, name) for name in DIFFERENTIABLE]
    save = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in given)
    made: tuple[Tensor, ...] = attention(save, *job.tensors, *job.settings)
    return Results(*made[: len(Results._fields)])
