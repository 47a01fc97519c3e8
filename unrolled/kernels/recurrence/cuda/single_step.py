"""Streaming: one step of a few sequences on a GPU, with one kernel for each layer."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from unrolled.cells import BuiltIn, LSTMCell, State
from unrolled.kernels.recurrence.cuda import compiler, launch
from unrolled.kernels.recurrence.cuda.arguments import Arguments
from unrolled.kernels.recurrence.cuda.constants import SINGLE_STEP_UNITS, VECTOR
from unrolled.kernels.recurrence.cuda.plan import KINDS, NUMBERS, Plan

MAX_ROWS = 8
OUTPUTS = 64  # allocated at a time: an allocation takes longer than a step


def supports(cell: BuiltIn, kind: int, batch: int) -> bool:
    """True if the kernel can run a step of this cell; if not, the kernels for whole sequences can."""
    small = batch <= MAX_ROWS and cell.weight_ih.shape[1] % VECTOR == 0 and cell.hidden_size % VECTOR == 0
    weights = (cell.weight_ih, cell.weight_hh)
    biases = [bias for bias in (cell.bias_ih, cell.bias_hh) if bias is not None]
    one_dtype = cell.weight_hh.dtype in NUMBERS and all(t.dtype == cell.weight_hh.dtype for t in (*weights, *biases))
    one_product = not (KINDS[kind].two_products or KINDS[kind].norm)
    return small and one_dtype and one_product and all(_aligned(t) for t in weights)


def _aligned(rows: Tensor) -> bool:
    """True if every row is contiguous and begins at a multiple of 16 bytes."""
    return rows.stride(-1) == 1 and rows.stride(0) % VECTOR == 0 and rows.data_ptr() % (2 * VECTOR) == 0


class StepKernel:
    """The step of a cell for a batch size: its weights and its launch, without inputs and states."""

    def __init__(self, cell: BuiltIn, kind: int, batch: int) -> None:
        hidden, inputs = cell.hidden_size, cell.weight_ih.shape[1]
        peephole = cell.weight_peephole if isinstance(cell, LSTMCell) else None
        weights = {"weights_x": cell.weight_ih, "weights": cell.weight_hh, "bias_x": cell.bias_ih}
        weights |= {"bias_h": cell.bias_hh, "unit_weights": None if peephole is None else peephole.float()}
        self._alive = {name: tensor.contiguous() for name, tensor in weights.items() if tensor is not None}
        addresses = {name: tensor.data_ptr() for name, tensor in self._alive.items()}
        self.arguments = Arguments(units=hidden, inputs=inputs, final_row=hidden, **addresses)
        shared = SINGLE_STEP_UNITS * KINDS[kind].gates * batch * 4
        blocks = hidden // SINGLE_STEP_UNITS
        plan = Plan(blocks, SINGLE_STEP_UNITS, batch, batch, batch, shared, accumulator_rows=0, cooperative=False)
        program = compiler.single_step(KINDS[kind], cell.weight_hh.dtype, batch)
        self.launch = launch.ready(program, "single_step", plan, cell.weight_hh.device)

    def set_states(self, arguments: Arguments, old: State, new: State) -> None:
        """Point the arguments to the state before and after the step."""
        arguments.h_initial, arguments.h_final = old[0].data_ptr(), new[0].data_ptr()
        arguments.state_row, arguments.final_row = old[0].stride(0), new[0].stride(0)
        if len(old) > 1:
            arguments.c_initial, arguments.c_final = old[1].data_ptr(), new[1].data_ptr()


def step(cell: BuiltIn, kind: int, x: Tensor, state: State) -> State | None:
    """The state after x (B, D), without a gradient; None if the kernel cannot run this step."""
    rows = all(_aligned(t) and t.dtype == cell.weight_hh.dtype for t in (x, *state))
    if not supports(cell, kind, x.shape[0]) or not rows or len({s.stride(0) for s in state}) > 1:
        return None
    new = tuple(torch.empty_like(s, memory_format=torch.contiguous_format) for s in state)
    kernel = StepKernel(cell, kind, x.shape[0])
    kernel.arguments.gates_x, kernel.arguments.gates_x_row = x.data_ptr(), x.stride(0)
    kernel.set_states(kernel.arguments, state, new)
    kernel.launch(kernel.arguments)
    return new


class FusedStream:
    """A stack of layers that keeps its state and takes one step at a time: one launch for each layer, nothing else.

    A step reads the state from one buffer and writes it to the other. Without gradients, memory for the outputs of some
    steps is allocated at once.
    """

    def __init__(self, cells: Sequence[BuiltIn], kinds: Sequence[int], batch: int, state: State) -> None:
        self._inputs, like = cells[0].weight_ih.shape[1], cells[0].weight_hh
        self._like, self._turn, self._batch = like, 0, batch
        self._outputs: list[Tensor] = []
        hidden, count = like.shape[1], len(state)
        # (two buffers, states, layers, batch, H)
        self._states = like.new_zeros(2, count, len(cells), batch, hidden)
        kernels = [StepKernel(cell, kind, batch) for cell, kind in zip(cells, kinds, strict=True)]
        self._steps = [
            [self._prepared(kernels[depth], depth, turn) for depth in range(len(cells))] for turn in range(2)
        ]
        self.state = state

    def _prepared(self, kernel: StepKernel, depth: int, turn: int) -> tuple[StepKernel, Arguments]:
        """The launch of a layer, without the input of the first and the output of the last layer."""
        old, new = (tuple(self._states[which, :, depth].unbind()) for which in (turn, 1 - turn))
        arguments = Arguments()
        ctypes.pointer(arguments)[0] = kernel.arguments
        kernel.set_states(arguments, old, new)
        arguments.gates_x_row = arguments.inputs
        if depth > 0:
            arguments.gates_x = self._states[1 - turn, 0, depth - 1].data_ptr()
        return kernel, arguments

    def feed(self, x: Tensor) -> Tensor:
        """Take one step: x (B, D) → output (B, H)."""
        like = self._like
        if x.dtype != like.dtype or x.device != like.device or not x.is_contiguous() or x.data_ptr() % (2 * VECTOR):
            x = torch.empty(self._batch, self._inputs, dtype=like.dtype, device=like.device).copy_(x)
        output = self._empty()
        steps = self._steps[self._turn]
        steps[0][1].gates_x, steps[-1][1].output = x.data_ptr(), output.data_ptr()
        for kernel, arguments in steps:
            kernel.launch(arguments)
        self._turn = 1 - self._turn
        return output

    def _empty(self) -> Tensor:
        """A new output. With gradients it shares no memory: autograd counts in-place changes of all that does."""
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
        for kept, new in zip(self._states[self._turn], state, strict=True):
            kept.copy_(new.transpose(0, 1))
