"""The two passes of a recurrence on a GPU: buffers and launches.

    gates_x (B, T, G·H) and U (G·H, H) → outputs (B, T, H) and the final state

H is even here; buffers of our own are filled up to H', a multiple of 32. Everything is in 16 bits but a unit's own
weights, the states after a reset and, if they like, the biases.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from unrolled.errors import UserError
from unrolled.kernels.recurrence.cuda import compiler, launch, products
from unrolled.kernels.recurrence.cuda.arguments import Arguments
from unrolled.kernels.recurrence.cuda.plan import BLOCK, KINDS, Kind, Pass, Plan, width_blocks

NOT_YET = -1  # all ones: a NaN that no rounding gives


def forward(
    gates_x: Tensor,
    weight: Tensor,
    bias_x: Tensor | None,
    bias_h: Tensor | None,
    own: Tensor | None,
    h_0: Tensor | None,
    c_0: Tensor | None,
    reset_h: Tensor | None,
    reset_c: Tensor | None,
    link: Tensor | None,
    lengths: Tensor | None,
    resets: Tensor | None,
    kind: int,
    reverse: bool,
    share: int,
    save: bool,
    time_first: bool | None = None,
    units: int = 0,
    exchange: Tensor | None = None,
) -> list[Tensor | None]:
    """Output, h_n, c_n, and for the backward pass what the products saw, gates, c as it leaves each step.

    What the products saw is h as it enters each step (T, B, H); where a step has two, r∘h follows, (2·T, B, H) in all.
    `link` has no numbers: it ties the backward pass to gates_x and h_0, which it does not read, so that a second
    derivative is refused and not silently zero. `time_first` is how the output lies in memory; as gates_x if not said.
    `units` is how many a norm counts: H, if it is not said. `exchange` may be there already.
    """
    cell = KINDS[kind]
    batch, steps = gates_x.shape[:2]
    hidden, width = weight.shape[1], width_blocks(weight.shape[1]) * BLOCK
    output = like_sequences(gates_x, hidden, time_first)
    h_n = gates_x.new_empty(batch, hidden)
    c_n = gates_x.new_empty(batch, hidden) if cell.memory else None
    plan = _plan("forward", kind, gates_x, batch, hidden, share)
    if exchange is None:
        exchange = new_exchange(gates_x, steps, batch, hidden, kind, share)
    saved = gates_x.new_empty(steps, batch, cell.saved * width) if save else None
    kept = steps, batch, cell.memory_width(width)
    memory = gates_x.new_empty(kept, dtype=torch.float32) if save and cell.memory else None
    sums = _sums(gates_x, steps, batch, width, plan) if cell.norm else None

    given = Arguments(units=units or hidden)
    alive = _describe(given, gates_x, own, c_0, reset_h, reset_c, lengths, resets, reverse)
    biases = {name: bias for name, bias in (("bias_x", bias_x), ("bias_h", bias_h)) if bias is not None}
    given.bias_wide = any(bias.dtype != gates_x.dtype for bias in biases.values())
    for name, bias in biases.items():
        setattr(given, name, _address(bias.float() if given.bias_wide else bias, alive))
    given.gates_x, given.gates_x_row, given.gates_x_step = _sequence(gates_x)
    given.weights, given.second_weights = _weights(weight, cell, alive)
    if h_0 is not None:
        given.h_initial = _address(h_0, alive)
    given.exchange = exchange.data_ptr()
    given.second_exchange = exchange[-steps:].data_ptr() if sums is None else sums.data_ptr()
    given.h_final = h_n.data_ptr()
    given.output, given.output_row, given.output_step = _sequence(output)
    for name, tensor in (("c_final", c_n), ("saved", saved), ("memory", memory)):
        if tensor is not None:
            setattr(given, name, tensor.data_ptr())
    _launch("forward", kind, plan, given, hidden, exchange)
    return [output, h_n, c_n, exchange if save else None, saved, memory]


class Back(NamedTuple):
    """What the kernel of the backward pass leaves: gradients, and those that are still to be summed up.

    That of gates_x is (T, B, G·H); of the products, d_gates (T, B, ·) and, where a step has two, d_candidate (T, B, ·);
    `entering` is what they multiplied. Those of biases and own weights are (S, ·, H') in as many parts.
    """

    cell: Kind
    d_gates_x: Tensor
    d_gates: Tensor
    d_candidate: Tensor | None
    entering: Tensor
    hidden: int
    uneven: bool  # whether d_gates is the one whose rows cuBLAS likes
    d_bias: Tensor | None
    d_own: Tensor | None
    d_states: tuple[Tensor | None, ...]  # of h_0, c_0, reset_h and reset_c

    def d_shared(self) -> list[Tensor | None]:
        """Of the biases (G, H), which is what both have, and of the own weights.

        A GRU's candidate has another for its recurrent bias, which is `own`'s.
        """
        found = (None if d is None else d.sum(0) for d in (self.d_bias, self.d_own))
        return [d if d is None or d.shape[1] == self.hidden else d[:, : self.hidden] for d in found]

    def d_weight(self, wide: bool) -> Tensor:
        """Of U, in 32 bits if that is `wide`."""
        cell, hidden = self.cell, self.hidden
        if self.d_candidate is not None:
            return _d_weights(self.d_gates, self.d_candidate, self.entering, hidden, wide)
        if cell.another or (self.uneven and self.d_gates_x.shape[2] % products.EIGHT):
            return _d_weight(self.d_gates, self.entering, hidden, self.d_gates.shape[2] // cell.gates, wide)
        return _d_weight(self.d_gates_x, self.entering, hidden, hidden, wide)


def back(
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
    lengths: Tensor | None,
    resets: Tensor | None,
    exchange: Tensor,
    saved: Tensor,
    memory: Tensor | None,
    kind: int,
    reverse: bool,
    share: int,
    units: int = 0,
    of_states: bool = True,
) -> Back:
    """The kernel, and what it leaves."""
    cell = KINDS[kind]
    steps, batch, width = exchange.shape[0] // (1 + cell.twice), *exchange.shape[1:]
    hidden = weight.shape[1]
    uneven = products.uneven(steps * batch, hidden, cell.gates * hidden, exchange.device)
    entering = exchange if uneven else exchange[..., :hidden]  # units that are none fill it up
    plan = _plan("backward", kind, exchange, batch, hidden, share)
    d_gates = _exchange(exchange, steps, batch, (cell.gates - cell.twice) * width, plan)
    d_candidate = _exchange(exchange, steps, batch, width, plan) if cell.twice else None
    sums = _sums(exchange, steps, batch, width, plan) if cell.norm else d_candidate
    apart = cell.another or width > hidden
    d_gates_x = exchange.new_empty(steps, batch, cell.gates * hidden) if apart else d_gates
    d_h_0 = exchange.new_empty(batch, hidden) if of_states else None
    d_c_0 = exchange.new_empty(batch, hidden) if of_states and cell.memory else None
    d_reset_h = torch.zeros_like(reset_h) if reset_h is not None else None
    d_reset_c = torch.zeros_like(reset_c) if reset_c is not None else None

    given = Arguments(units=units or hidden)
    alive = _describe(given, exchange[:steps].transpose(0, 1), own, c_0, reset_h, reset_c, lengths, resets, reverse)
    given.weights, given.second_weights = _weights(weight, cell, alive)
    tally_rows = sum(part.tally_rows for part, _ in _parts(plan, batch))
    tallied = bias_x is not None or bias_h is not None, (bias_h if cell.candidate else own) is not None
    d_bias, d_own = (
        exchange.new_empty(tally_rows, count, width, dtype=torch.float32) if wanted else None
        for wanted, count in zip(tallied, (cell.gates, cell.own), strict=True)
    )
    if d_output is not None:
        d_output = d_output if d_output.stride(-1) == 1 and _even(d_output) else d_output.contiguous()
        alive.append(d_output)
        given.d_output, given.d_output_row, given.d_output_step = _sequence(d_output)
    for name, gradient in (("d_h_final", d_h_n), ("d_c_final", d_c_n)):
        if gradient is not None:
            setattr(given, name, _address(gradient, alive))
    addresses = {
        "exchange": exchange, "saved": saved, "memory": memory, "d_gates": d_gates, "d_candidate": sums,
        "d_gates_x": None if d_gates_x is d_gates else d_gates_x, "d_bias": d_bias, "d_own": d_own,
        "d_h_initial": d_h_0, "d_c_initial": d_c_0, "d_h_reset": d_reset_h, "d_c_reset": d_reset_c,
    }  # fmt: skip
    for name, tensor in addresses.items():
        if tensor is not None:
            setattr(given, name, tensor.data_ptr())
    _launch("backward", kind, plan, given, hidden, *(d for d in (d_gates, d_candidate) if d is not None))
    d_states = d_h_0, d_c_0, d_reset_h, d_reset_c
    return Back(cell, d_gates_x, d_gates, d_candidate, entering, hidden, uneven, d_bias, d_own, d_states)


def _d_weight(d_products: Tensor, entering: Tensor, hidden: int, width: int, wide: bool) -> Tensor:
    """The gradient (·, H) of weights from that of their products (T, B, ·), of H or H' units, and what entered them."""
    return _real(products.product(d_products.flatten(0, 1).t(), entering.flatten(0, 1), wide), hidden, width)


def _d_weights(d_gates: Tensor, d_candidate: Tensor, entering: Tensor, hidden: int, wide: bool) -> Tensor:
    """The same where a step has two products: side by side in a graph, since neither fills the GPU."""
    steps, width, device = len(d_gates), d_candidate.shape[2], d_gates.device
    found = entering.new_empty(3 * width, entering.shape[2], dtype=torch.float32 if wide else None)
    with launch.forked(device, launch.capturing(device)) as beside:
        with beside:
            products.product(d_candidate.flatten(0, 1).t(), entering[-steps:].flatten(0, 1), wide, found[2 * width :])
        products.product(d_gates.flatten(0, 1).t(), entering[:steps].flatten(0, 1), wide, found[: 2 * width])
    return _real(found, hidden, width)


def _real(d_weight: Tensor, hidden: int, width: int) -> Tensor:
    """Without units that are none: (·, H)."""
    if width > hidden:
        return d_weight.view(-1, width, d_weight.shape[1])[:, :hidden, :hidden].flatten(0, 1).contiguous()
    return d_weight if d_weight.shape[1] == hidden else products.cut(d_weight, len(d_weight), hidden)


def _launch(direction: Pass, kind: int, plan: Plan, given: Arguments, hidden: int, *waited: Tensor) -> None:
    """`waited` are the buffers (T, B, ·) whose words blocks wait for."""
    dtype, device = waited[0].dtype, waited[0].device
    slots = 0

    def run(part: Plan, first: int) -> None:
        nonlocal slots
        program = compiler.recurrence(KINDS[kind], hidden, dtype, part.units, part.near, part.many_rows)
        given.group_rows, given.chunk_rows = part.group_rows, part.chunk_rows
        given.first_row, given.end_row = first, min(first + part.rows, given.batch)
        given.first_slot = slots
        slots += part.tally_rows
        launch.run(program, direction, part, given, device)

    if plan.rest is None:
        for part, first in _parts(plan, given.batch):
            run(part, first)
        return
    with launch.forked(device) as beside:
        run(plan, 0)
        with beside:  # clusters must find their places first, and have the time for it while this is filled
            for buffer in waited:
                buffer.view(torch.int32)[:, plan.rows :].fill_(NOT_YET)
            run(plan.rest, plan.rows)


def _parts(plan: Plan, batch: int) -> list[tuple[Plan, int]]:
    """The launches that all rows take, and the first row of each."""
    if plan.rest is not None:
        return [(plan, 0), (plan.rest, plan.rows)]
    return [(plan, first) for first in range(0, batch, plan.rows)]


def _plan(direction: Pass, kind: int, like: Tensor, batch: int, hidden: int, share: int) -> Plan:
    plan = launch.plan(KINDS[kind], direction, width_blocks(hidden), batch, share, like.device)
    assert plan is not None, "the engine refuses what a GPU is too small for"
    return plan


def _describe(
    given: Arguments,
    sequences: Tensor,
    own: Tensor | None,
    c_0: Tensor | None,
    reset_h: Tensor | None,
    reset_c: Tensor | None,
    lengths: Tensor | None,
    resets: Tensor | None,
    reverse: bool,
) -> list[Tensor]:
    """Fills in what both passes have in common; the tensors returned must live until the launch."""
    alive: list[Tensor] = []
    given.batch, given.steps, given.reverse = *sequences.shape[:2], reverse
    optional = {"own": own, "c_initial": c_0, "h_reset": reset_h, "c_reset": reset_c, "lengths": lengths}
    for name, tensor in optional.items():
        if tensor is not None:
            setattr(given, name, _address(tensor, alive))
    if resets is not None:
        given.resets = resets.data_ptr()
        given.resets_row, given.resets_step = resets.stride()
    return alive


def _weights(weight: Tensor, cell: Kind, alive: list[Tensor]) -> tuple[int, int]:
    """U (G·H, H), in two parts where a step has two products."""
    last = weight.shape[0] - weight.shape[1]
    parts = (weight[:last], weight[last:]) if cell.twice else (weight,)
    addresses = [_address(part, alive) for part in parts]
    return addresses[0], addresses[-1]


def _address(tensor: Tensor, alive: list[Tensor]) -> int:
    alive.append(tensor.contiguous())
    return alive[-1].data_ptr()


def _sequence(sequences: Tensor) -> tuple[int, int, int]:
    """Where (B, T, ·) begins, and its strides."""
    return sequences.data_ptr(), sequences.stride(0), sequences.stride(1)


def _even(sequences: Tensor) -> bool:
    """Whether every row of (B, T, ·) begins where a word of 32 bits does."""
    return sequences.data_ptr() % 4 == 0 and sequences.stride(0) % 2 == 0 and sequences.stride(1) % 2 == 0


def like_sequences(sequences: Tensor, width: int, time_first: bool | None = None) -> Tensor:
    """An empty (B, T, width), time first in memory where the given one is, unless that is said."""
    batch, steps = sequences.shape[:2]
    if sequences.stride(0) < sequences.stride(1) if time_first is None else time_first:
        return sequences.new_empty(steps, batch, width).transpose(0, 1)
    return sequences.new_empty(batch, steps, width)


def _sums(like: Tensor, steps: int, batch: int, width: int, plan: Plan) -> Tensor:
    """What the blocks of a norm show each other: of each two norms, two numbers in 32 bits."""
    return _exchange(like, steps, batch, 2 * width // plan.units * 2 * 2, plan)


def new_exchange(like: Tensor, steps: int, batch: int, hidden: int, kind: int, share: int) -> Tensor:
    """The buffer of the forward pass, in which no word has come yet."""
    plan, width = _plan("forward", kind, like, batch, hidden, share), width_blocks(hidden) * BLOCK
    return _exchange(like, steps * (1 + KINDS[kind].twice), batch, width, plan)


def _exchange(like: Tensor, steps: int, batch: int, width: int, plan: Plan) -> Tensor:
    """A buffer in which no word has come yet. Clusters do not wait for it."""
    if plan.near:
        return like.new_empty(steps, batch, width)
    words = like.new_full((steps, batch, width // 2), NOT_YET, dtype=torch.int32)
    return words.view(like.dtype)


def of_biases(
    kind: int, bias_x: Tensor | None, bias_h: Tensor | None, d_bias: Tensor | None, d_own: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of both biases, in their dtype."""
    if d_bias is None:
        return None, None
    d_x = None if bias_x is None else d_bias.flatten().to(bias_x.dtype)
    if bias_h is None:
        return d_x, None
    if KINDS[kind].candidate:
        assert d_own is not None
        return d_x, torch.cat([d_bias[:-1], d_own]).flatten().to(bias_h.dtype)
    return d_x, d_bias.flatten().to(bias_h.dtype) if d_x is None else d_x


def refuse_double_backward(ctx: Any, *gradients: object) -> None:
    raise UserError(
        "The cuda engine has no second derivative.",
        "Use backend='reference', which has derivatives of any order.",
    )
