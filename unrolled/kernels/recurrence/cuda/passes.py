"""The forward and the backward pass of a recurrence on a GPU: buffers and launches.

    gates_x (B, T, G·H) and U (G·H, H) → outputs (B, T, H) and the final state

H is even here; padding fills the engine's own buffers up to H', a multiple of 32. Numbers have 16 bits, except for unit
weights and reset states, which are float32, and biases, which may be.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from unrolled.errors import UserError
from unrolled.kernels.cuda.products import product
from unrolled.kernels.recurrence.cuda import compiler, launch, products
from unrolled.kernels.recurrence.cuda.arguments import Arguments
from unrolled.kernels.recurrence.cuda.constants import EMPTY_WORD, VECTOR
from unrolled.kernels.recurrence.cuda.plan import KINDS, Kind, Pass, Plan, padded_size


class Tensors(NamedTuple):
    """Weights, states and positions of a recurrence; None is zero, or absent."""

    weight: Tensor  # U (G·H, H)
    bias_x: Tensor | None  # (G·H,)
    bias_h: Tensor | None
    unit_weights: Tensor | None  # peepholes (3, H), or gains and shifts of norms (6, H)
    h_0: Tensor | None  # (B, H), as the other states
    c_0: Tensor | None
    reset_h: Tensor | None
    reset_c: Tensor | None
    lengths: Tensor | None  # (B,)
    resets: Tensor | None  # (B, T)


class Settings(NamedTuple):
    """The settings of a recurrence."""

    kind: int
    reverse: bool
    share: int  # the recurrence has one of `share` parts of the GPU
    units: int = 0  # that a norm counts; 0 is H


class Recurrence(NamedTuple):
    """A recurrence, without its input."""

    tensors: Tensors
    settings: Settings

    @property
    def cell(self) -> Kind:
        """Its cell."""
        return KINDS[self.settings.kind]

    @property
    def hidden(self) -> int:
        """H."""
        return self.tensors.weight.shape[1]

    def plan(self, direction: Pass, batch: int, device: torch.device) -> Plan:
        """The launch of one pass."""
        found = launch.plan(self.cell, direction, padded_size(self.hidden), batch, self.settings.share, device)
        assert found is not None, "the engine refuses sizes that the GPU is too small for"
        return found


class Saved(NamedTuple):
    """The buffers that the forward pass leaves to the backward pass.

    `exchange` is the h that enters each step (T, B, H'); with two products in a step r∘h follows, (2·T, B, H') in all.
    """

    exchange: Tensor
    gates: Tensor  # (T, B, S·H')
    cell_states: Tensor | None  # c after each step (T, B, H')


class ForwardResults(NamedTuple):
    """The results of the forward pass."""

    output: Tensor
    h_n: Tensor
    c_n: Tensor | None
    saved: Saved | None


class _Call:
    """The arguments of a kernel, and the tensors that must live until it is launched."""

    def __init__(self, job: Recurrence, batch: int, steps: int) -> None:
        tensors, settings = job.tensors, job.settings
        self.arguments = Arguments(units=settings.units or job.hidden, batch=batch, steps=steps)
        self.arguments.reverse = settings.reverse
        self._alive: list[Tensor] = []
        self.set(unit_weights=tensors.unit_weights, c_initial=tensors.c_0, lengths=tensors.lengths)
        self.set(h_reset=tensors.reset_h, c_reset=tensors.reset_c)
        if tensors.resets is not None:
            self.set_sequence("resets", tensors.resets)
        last = tensors.weight.shape[0] - job.hidden
        parts = (tensors.weight[:last], tensors.weight[last:]) if job.cell.two_products else (tensors.weight,)
        self.set(weights=parts[0], second_weights=parts[-1])

    def set(self, **tensors: Tensor | None) -> None:
        """Point arguments to tensors; None leaves a null pointer."""
        for name, tensor in tensors.items():
            if tensor is not None:
                self._alive.append(tensor.contiguous())
                setattr(self.arguments, name, self._alive[-1].data_ptr())

    def set_sequence(self, name: str, sequences: Tensor) -> None:
        """Point an argument to (B, T, ·), with its strides."""
        self._alive.append(sequences)
        setattr(self.arguments, name, sequences.data_ptr())
        setattr(self.arguments, f"{name}_row", sequences.stride(0))
        setattr(self.arguments, f"{name}_step", sequences.stride(1))


def forward(
    job: Recurrence, gates_x: Tensor, save: bool, time_first: bool | None = None, exchange: Tensor | None = None
) -> ForwardResults:
    """Run all steps.

    `time_first` is the memory layout of the output; None is that of gates_x. `exchange` may have been made before.
    """
    cell, tensors = job.cell, job.tensors
    batch, steps = gates_x.shape[:2]
    hidden, padded = job.hidden, padded_size(job.hidden)
    output = like_sequences(gates_x, hidden, time_first)
    h_n = gates_x.new_empty(batch, hidden)
    c_n = gates_x.new_empty(batch, hidden) if cell.cell_state else None
    plan = job.plan("forward", batch, gates_x.device)
    if exchange is None:
        exchange = new_exchange(job, gates_x, steps, batch)
    gates = gates_x.new_empty(steps, batch, cell.saved * padded) if save else None
    kept = steps, batch, cell.cell_state_size(padded)
    cell_states = gates_x.new_empty(kept, dtype=torch.float32) if save and cell.cell_state else None

    call = _Call(job, batch, steps)
    biases = {name: b for name, b in (("bias_x", tensors.bias_x), ("bias_h", tensors.bias_h)) if b is not None}
    wide = any(bias.dtype != gates_x.dtype for bias in biases.values())
    call.arguments.bias_wide = wide
    call.set(**{name: bias.float() if wide else bias for name, bias in biases.items()})
    call.set_sequence("gates_x", gates_x)
    call.set_sequence("output", output)
    second = _norm_sums(gates_x, steps, batch, padded, plan) if cell.norm else exchange[-steps:]
    call.set(h_initial=tensors.h_0, exchange=exchange, second_exchange=second)
    call.set(h_final=h_n, c_final=c_n, saved=gates, cell_states=cell_states)
    _launch("forward", job, plan, call.arguments, exchange)
    return ForwardResults(output, h_n, c_n, None if gates is None else Saved(exchange, gates, cell_states))


class BackwardResults(NamedTuple):
    """The gradients after the kernel of the backward pass; those of weights and biases are still to be summed up.

    `d_gates_x` is (T, B, G·H). `d_gates` (T, B, ·) and `d_candidate`, if a step has two products, are those of the
    products, and `entering` is what those multiplied. `d_bias` and `d_unit_weights` are (S, ·, H') in S parts.
    """

    cell: Kind
    hidden: int
    d_gates_x: Tensor
    d_gates: Tensor
    d_candidate: Tensor | None
    entering: Tensor
    aligned: bool  # whether products use padded rows, which cuBLAS reads faster
    d_bias: Tensor | None
    d_unit_weights: Tensor | None
    d_states: tuple[Tensor | None, ...]  # of h_0, c_0, reset_h and reset_c

    def d_shared(self) -> list[Tensor | None]:
        """The gradients of the biases (G, H), the same for both, and of the unit weights.

        With a separate candidate, the latter is that of the candidate's recurrent bias.
        """
        sums = (None if d is None else d.sum(0) for d in (self.d_bias, self.d_unit_weights))
        return [d if d is None or d.shape[1] == self.hidden else d[:, : self.hidden] for d in sums]

    def d_weight(self, wide: bool) -> Tensor:
        """The gradient of U, in float32 if `wide`."""
        cell, hidden = self.cell, self.hidden
        if self.d_candidate is not None:
            return _d_weights(self.d_gates, self.d_candidate, self.entering, hidden, wide)
        if cell.separate_input_gradient or (self.aligned and self.d_gates_x.shape[2] % VECTOR):
            return _d_weight(self.d_gates, self.entering, hidden, self.d_gates.shape[2] // cell.gates, wide)
        return _d_weight(self.d_gates_x, self.entering, hidden, hidden, wide)


def backward(
    job: Recurrence,
    d_output: Tensor | None,
    d_finals: tuple[Tensor | None, Tensor | None],
    saved: Saved,
    of_states: bool = True,
) -> BackwardResults:
    """Run all steps backward, from the gradients of the output and of the final h and c."""
    cell, tensors, exchange = job.cell, job.tensors, saved.exchange
    steps, batch, padded = exchange.shape[0] // (1 + cell.two_products), *exchange.shape[1:]
    hidden = job.hidden
    plan = job.plan("backward", batch, exchange.device)
    d_gates = _exchange(exchange, steps, batch, (cell.gates - cell.two_products) * padded, plan)
    d_candidate = _exchange(exchange, steps, batch, padded, plan) if cell.two_products else None
    second = _norm_sums(exchange, steps, batch, padded, plan) if cell.norm else d_candidate
    separate = cell.separate_input_gradient or padded > hidden
    d_gates_x = exchange.new_empty(steps, batch, cell.gates * hidden) if separate else d_gates
    accumulators = sum(part.accumulator_rows for part, _ in _parts(plan, batch))
    d_bias, d_unit_weights = (
        exchange.new_empty(accumulators, count, padded, dtype=torch.float32) if wanted else None
        for wanted, count in zip(_summed(job), (cell.gates, cell.unit_weights), strict=True)
    )
    d_states = (
        exchange.new_empty(batch, hidden) if of_states else None,
        exchange.new_empty(batch, hidden) if of_states and cell.cell_state else None,
        None if tensors.reset_h is None else torch.zeros_like(tensors.reset_h),
        None if tensors.reset_c is None else torch.zeros_like(tensors.reset_c),
    )
    call = _Call(job, batch, steps)
    if d_output is not None:
        call.set_sequence("d_output", d_output if _in_words(d_output) else d_output.contiguous())
    call.set(d_h_final=d_finals[0], d_c_final=d_finals[1])
    call.set(exchange=exchange, saved=saved.gates, cell_states=saved.cell_states, d_gates=d_gates, d_candidate=second)
    call.set(d_gates_x=d_gates_x if separate else None, d_bias=d_bias, d_unit_weights=d_unit_weights)
    call.set(**dict(zip(("d_h_initial", "d_c_initial", "d_h_reset", "d_c_reset"), d_states, strict=True)))
    _launch("backward", job, plan, call.arguments, *(d for d in (d_gates, d_candidate) if d is not None))
    aligned = products.worth_padding(steps * batch, hidden, cell.gates * hidden, exchange.device)
    entering = exchange if aligned else exchange[..., :hidden]
    return BackwardResults(
        cell, hidden, d_gates_x, d_gates, d_candidate, entering, aligned, d_bias, d_unit_weights, d_states
    )


def _summed(job: Recurrence) -> tuple[bool, bool]:
    """True if the kernel sums up the gradients of biases and of unit weights."""
    tensors = job.tensors
    own = tensors.bias_h if job.cell.separate_candidate else tensors.unit_weights
    return tensors.bias_x is not None or tensors.bias_h is not None, own is not None


def _d_weight(d_products: Tensor, entering: Tensor, hidden: int, padded: int, wide: bool) -> Tensor:
    """The gradient (·, H) of weights, from that of their products (T, B, ·) and from what they multiplied."""
    found = product(d_products.flatten(0, 1).t(), entering.flatten(0, 1), wide)
    return _without_padding(found, hidden, padded)


def _d_weights(d_gates: Tensor, d_candidate: Tensor, entering: Tensor, hidden: int, wide: bool) -> Tensor:
    """The same for two products in a step; side by side in a CUDA graph, since neither fills the GPU."""
    steps, padded, device = len(d_gates), d_candidate.shape[2], d_gates.device
    found = entering.new_empty(3 * padded, entering.shape[2], dtype=torch.float32 if wide else None)
    with launch.forked(device, launch.capturing(device)) as beside:
        with beside:
            product(d_candidate.flatten(0, 1).t(), entering[-steps:].flatten(0, 1), wide, found[2 * padded :])
        product(d_gates.flatten(0, 1).t(), entering[:steps].flatten(0, 1), wide, found[: 2 * padded])
    return _without_padding(found, hidden, padded)


def _without_padding(d_weight: Tensor, hidden: int, padded: int) -> Tensor:
    """The gradient (·, H) of the units that are not padding."""
    if padded > hidden:
        return d_weight.view(-1, padded, d_weight.shape[1])[:, :hidden, :hidden].flatten(0, 1).contiguous()
    return d_weight if d_weight.shape[1] == hidden else products.cut(d_weight, len(d_weight), hidden)


def _launch(direction: Pass, job: Recurrence, plan: Plan, arguments: Arguments, *polled: Tensor) -> None:
    """Launch the kernel for all rows. `polled` are the buffers (T, B, ·) whose words blocks wait for."""
    dtype, device = polled[0].dtype, polled[0].device
    accumulators = 0

    def run(part: Plan, first: int) -> None:
        nonlocal accumulators
        program = compiler.recurrence(job.cell, job.hidden, dtype, part.units, part.in_cluster, part.many_rows)
        arguments.group_rows, arguments.chunk_rows = part.group_rows, part.chunk_rows
        arguments.first_row, arguments.end_row = first, min(first + part.rows, arguments.batch)
        arguments.first_accumulator = accumulators
        accumulators += part.accumulator_rows
        launch.run(program, direction, part, arguments, device)

    if plan.rest is None:
        for part, first in _parts(plan, arguments.batch):
            run(part, first)
        return
    with launch.forked(device) as beside:
        run(plan, 0)
        with beside:  # clusters are placed first, while this buffer is filled
            for buffer in polled:
                buffer.view(torch.int32)[:, plan.rows :].fill_(EMPTY_WORD)
            run(plan.rest, plan.rows)


def _parts(plan: Plan, batch: int) -> list[tuple[Plan, int]]:
    """The launches for all rows, and the first row of each."""
    if plan.rest is not None:
        return [(plan, 0), (plan.rest, plan.rows)]
    return [(plan, first) for first in range(0, batch, plan.rows)]


def _in_words(sequences: Tensor) -> bool:
    """True if every row of (B, T, ·) is contiguous and begins at a multiple of four bytes."""
    even = sequences.data_ptr() % 4 == 0 and sequences.stride(0) % 2 == 0 and sequences.stride(1) % 2 == 0
    return even and sequences.stride(-1) == 1


def like_sequences(sequences: Tensor, size: int, time_first: bool | None = None) -> Tensor:
    """An empty (B, T, size); its memory layout is that of `sequences` unless `time_first` sets it."""
    batch, steps = sequences.shape[:2]
    if sequences.stride(0) < sequences.stride(1) if time_first is None else time_first:
        return sequences.new_empty(steps, batch, size).transpose(0, 1)
    return sequences.new_empty(batch, steps, size)


def _norm_sums(like: Tensor, steps: int, batch: int, padded: int, plan: Plan) -> Tensor:
    """The exchange for the sums of a norm: for each block and norm two numbers of 32 bits."""
    return _exchange(like, steps, batch, 2 * padded // plan.units * 2 * 2, plan)


def new_exchange(job: Recurrence, like: Tensor, steps: int, batch: int) -> Tensor:
    """The empty exchange of the forward pass."""
    plan = job.plan("forward", batch, like.device)
    return _exchange(like, steps * (1 + job.cell.two_products), batch, padded_size(job.hidden), plan)


def _exchange(like: Tensor, steps: int, batch: int, size: int, plan: Plan) -> Tensor:
    """A buffer (T, B, size) of empty words. Clusters do not poll it."""
    if plan.in_cluster:
        return like.new_empty(steps, batch, size)
    words = like.new_full((steps, batch, size // 2), EMPTY_WORD, dtype=torch.int32)
    return words.view(like.dtype)


def bias_gradients(
    job: Recurrence, d_bias: Tensor | None, d_unit_weights: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of both biases, in their dtypes, from the sums of `BackwardResults.d_shared`."""
    bias_x, bias_h = job.tensors.bias_x, job.tensors.bias_h
    if d_bias is None:
        return None, None
    d_x = None if bias_x is None else d_bias.flatten().to(bias_x.dtype)
    if bias_h is None:
        return d_x, None
    if job.cell.separate_candidate:
        assert d_unit_weights is not None
        return d_x, torch.cat([d_bias[:-1], d_unit_weights]).flatten().to(bias_h.dtype)
    return d_x, d_bias.flatten().to(bias_h.dtype) if d_x is None else d_x


def refuse_double_backward(ctx: Any, *gradients: object) -> None:
    """Raise the error of a second derivative."""
    raise UserError(
        "The cuda engine has no second derivative.",
        "Use backend='reference', which has derivatives of any order.",
    )
