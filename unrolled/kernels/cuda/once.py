"""One step of a few sequences on a GPU, in one kernel: what streaming asks for."""

from __future__ import annotations

import torch
from torch import Tensor

from unrolled.cells import BuiltIn, LSTMCell, State
from unrolled.kernels.cuda import compiler, launch
from unrolled.kernels.cuda.arguments import Arguments
from unrolled.kernels.cuda.plan import KINDS, NUMBERS, WARPS, Plan

MOST_ROWS = 8
EIGHT = 8  # numbers of 16 bits that are read at once


def step(cell: BuiltIn, kind: int, x: Tensor, state: State) -> State | None:
    """The state after x (B, D), without a gradient; None where only the kernels for whole sequences will do."""
    hidden, given = cell.hidden_size, (x, cell.weight_ih, cell.weight_hh, *state)
    rows = all(t.stride(-1) == 1 and t.stride(0) % EIGHT == 0 and t.data_ptr() % (2 * EIGHT) == 0 for t in given)
    small = x.shape[0] <= MOST_ROWS and x.shape[1] % EIGHT == 0 and hidden % EIGHT == 0
    plain = x.dtype in NUMBERS and all(t.dtype == x.dtype for t in (*given, *_biases(cell)))
    if KINDS[kind].twice or not (rows and small and plain) or len({s.stride(0) for s in state}) > 1:
        return None
    new = tuple(torch.empty_like(s, memory_format=torch.contiguous_format) for s in state)
    arguments = Arguments(units=hidden, inputs=x.shape[1], gates_x_row=x.stride(0), state_row=state[0].stride(0))
    arguments.gates_x, arguments.weights_x, arguments.weights = (t.data_ptr() for t in given[:3])
    arguments.h_initial, arguments.h_final, arguments.final_row = state[0].data_ptr(), new[0].data_ptr(), hidden
    if len(state) > 1:
        arguments.c_initial, arguments.c_final = state[1].data_ptr(), new[1].data_ptr()
    alive = [bias.contiguous() for bias in _biases(cell)]
    for name, bias in (("bias_x", cell.bias_ih), ("bias_h", cell.bias_hh)):
        if bias is not None:
            setattr(arguments, name, alive.pop(0).data_ptr())
    own = cell.weight_peephole.float() if isinstance(cell, LSTMCell) and cell.weight_peephole is not None else None
    if own is not None:
        arguments.own = own.data_ptr()
    batch = x.shape[0]
    plan = Plan(-(-hidden // WARPS), WARPS, batch, batch, batch, shared_bytes=0, tally_rows=0, cooperative=False)
    launch.run(compiler.once(KINDS[kind], x.dtype, batch), "once", plan, arguments, x.device)
    return new


def _biases(cell: BuiltIn) -> list[Tensor]:
    return [bias for bias in (cell.bias_ih, cell.bias_hh) if bias is not None]
