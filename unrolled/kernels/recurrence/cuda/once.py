"""One step of a few sequences on a GPU, in one kernel for each layer: what streaming asks for."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from unrolled.cells import BuiltIn, LSTMCell, State
from unrolled.kernels.recurrence.cuda import compiler, launch
from unrolled.kernels.recurrence.cuda.arguments import Arguments
from unrolled.kernels.recurrence.cuda.plan import KINDS, NUMBERS, WARPS, Plan

MOST_ROWS = 8
BLOCK_UNITS = WARPS // 2  # two warps have one
OUTPUTS = 64  # made at a time: memory for one takes longer than a step
EIGHT = 8  # numbers of 16 bits that are read at once


def takes(cell: BuiltIn, kind: int, batch: int) -> bool:
    """Whether the kernel runs a step of this cell; if not, only the kernels for whole sequences will do."""
    small = batch <= MOST_ROWS and cell.weight_ih.shape[1] % EIGHT == 0 and cell.hidden_size % EIGHT == 0
    given = (cell.weight_ih, cell.weight_hh, *_biases(cell))
    plain = cell.weight_hh.dtype in NUMBERS and all(t.dtype == cell.weight_hh.dtype for t in given)
    return small and plain and not (KINDS[kind].twice or KINDS[kind].norm) and all(_in_eights(t) for t in given[:2])


def _in_eights(rows: Tensor) -> bool:
    """Whether every row begins where sixteen bytes do."""
    return rows.stride(-1) == 1 and rows.stride(0) % EIGHT == 0 and rows.data_ptr() % (2 * EIGHT) == 0


class StepLayer:
    """A cell's step for so many rows: its weights, and the launch, but for what it reads and writes."""

    def __init__(self, cell: BuiltIn, kind: int, batch: int) -> None:
        hidden, inputs = cell.hidden_size, cell.weight_ih.shape[1]
        own = cell.weight_peephole.float() if isinstance(cell, LSTMCell) and cell.weight_peephole is not None else None
        given = {"weights_x": cell.weight_ih, "weights": cell.weight_hh, "own": own}
        given |= {"bias_x": cell.bias_ih, "bias_h": cell.bias_hh}
        self._alive = {name: tensor.contiguous() for name, tensor in given.items() if tensor is not None}
        addresses = {name: tensor.data_ptr() for name, tensor in self._alive.items()}
        self.arguments = Arguments(units=hidden, inputs=inputs, final_row=hidden, **addresses)
        shared = BLOCK_UNITS * KINDS[kind].gates * batch * 4
        plan = Plan(hidden // BLOCK_UNITS, BLOCK_UNITS, batch, batch, batch, shared, tally_rows=0, cooperative=False)
        program = compiler.once(KINDS[kind], cell.weight_hh.dtype, batch)
        self.launch = launch.ready(program, "once", plan, cell.weight_hh.device)

    def set_states(self, arguments: Arguments, old: State, new: State) -> None:
        """From where to where the state goes."""
        arguments.h_initial, arguments.h_final = old[0].data_ptr(), new[0].data_ptr()
        arguments.state_row, arguments.final_row = old[0].stride(0), new[0].stride(0)
        if len(old) > 1:
            arguments.c_initial, arguments.c_final = old[1].data_ptr(), new[1].data_ptr()


def step(cell: BuiltIn, kind: int, x: Tensor, state: State) -> State | None:
    """The state after x (B, D), without a gradient; None where only the kernels for whole sequences will do."""
    rows = all(_in_eights(t) and t.dtype == cell.weight_hh.dtype for t in (x, *state))
    if not takes(cell, kind, x.shape[0]) or not rows or len({s.stride(0) for s in state}) > 1:
        return None
    new = tuple(torch.empty_like(s, memory_format=torch.contiguous_format) for s in state)
    layer = StepLayer(cell, kind, x.shape[0])
    layer.arguments.gates_x, layer.arguments.gates_x_row = x.data_ptr(), x.stride(0)
    layer.set_states(layer.arguments, state, new)
    layer.launch(layer.arguments)
    return new


class Stream:
    """Layers on top of each other, a step at a time, with a state of their own: one launch for each, and nothing else.

    A step reads the state of one buffer and writes that of the other. Where nothing wants a gradient, outputs share
    memory that is made for some steps ahead.
    """

    def __init__(self, cells: Sequence[BuiltIn], kinds: Sequence[int], batch: int, state: State) -> None:
        self._inputs, like = cells[0].weight_ih.shape[1], cells[0].weight_hh
        self._like, self._turn, self._batch = like, 0, batch
        self._outputs: list[Tensor] = []
        hidden, count = like.shape[1], len(state)
        # (two of them, states, layers, batch, H)
        self._states = like.new_zeros(2, count, len(cells), batch, hidden)
        layers = [StepLayer(cell, kind, batch) for cell, kind in zip(cells, kinds, strict=True)]
        self._steps = [[self._prepared(layers, depth, turn) for depth in range(len(cells))] for turn in range(2)]
        self.state = state

    def _prepared(self, layers: Sequence[StepLayer], depth: int, turn: int) -> tuple[StepLayer, Arguments]:
        """A layer's launch, but for the input of the first and the output of the last."""
        old, new = (tuple(self._states[which, :, depth].unbind()) for which in (turn, 1 - turn))
        arguments = Arguments()
        ctypes.pointer(arguments)[0] = layers[depth].arguments
        layers[depth].set_states(arguments, old, new)
        arguments.gates_x_row = arguments.inputs
        if depth > 0:
            arguments.gates_x = self._states[1 - turn, 0, depth - 1].data_ptr()
        return layers[depth], arguments

    def feed(self, x: Tensor) -> Tensor:
        """One step on: x (B, D) → output (B, H)."""
        like = self._like
        if x.dtype != like.dtype or x.device != like.device or not x.is_contiguous() or x.data_ptr() % (2 * EIGHT):
            x = torch.empty(self._batch, self._inputs, dtype=like.dtype, device=like.device).copy_(x)
        output = self._empty()
        steps = self._steps[self._turn]
        steps[0][1].gates_x, steps[-1][1].output = x.data_ptr(), output.data_ptr()
        for layer, arguments in steps:
            layer.launch(arguments)
        self._turn = 1 - self._turn
        return output

    def _empty(self) -> Tensor:
        """An output of the caller's own. What shares memory counts changes in place together, and autograd minds."""
        like, size = self._like, (self._batch, self._like.shape[1])
        if torch.is_grad_enabled():
            return like.new_empty(size)
        if not self._outputs:
            self._outputs = list(like.new_empty(OUTPUTS, *size).unbind())
        return self._outputs.pop()

    @property
    def state(self) -> State:
        """A copy of the state after the last step, (B, L, H) each."""
        return tuple(s.transpose(0, 1).clone() for s in self._states[self._turn])

    @state.setter
    def state(self, state: State) -> None:
        for kept, given in zip(self._states[self._turn], state, strict=True):
            kept.copy_(given.transpose(0, 1))


def _biases(cell: BuiltIn) -> list[Tensor]:
    return [bias for bias in (cell.bias_ih, cell.bias_hh) if bias is not None]
