"""Streaming: a layer that takes one step at a time, with its weights packed for it (S9)."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from unrolled.cells import BuiltIn, GRUCell, LSTMCell, RNNCell, State
from unrolled.errors import UserError, unknown_name
from unrolled.kernels import ENGINES, NOT_BUILT
from unrolled.kernels.job import Job
from unrolled.nn.stack import combine

if TYPE_CHECKING:
    from unrolled.nn.dropin import DropIn

WEIGHTS = ("fp32", "fp16", "int8")


class Stepper:
    """A layer's step for streaming: x (B, D) and the state in, the output (B, O) and the state out.

    Made by `layer.stepper(weights=...)`. The weights are copied and packed when it is made: a later change of the
    layer is not seen. It computes what the layer computes in evaluation mode, without gradients. `weights` is how they
    are kept: "fp32"; "fp16", half the memory to read; or "int8", with one scale for each row and the inputs rounded
    to 8 bits at every step, a quarter. Arithmetic and state are float32 whichever it is.

    The state is a tuple with one (B, L, size) tensor for each of the cell's: batch first, so that a search can gather
    its beams on dimension 0.

    >>> import unrolled
    >>> layer = unrolled.LSTM(3, 4, num_layers=2, batch_first=True)
    >>> stepper = layer.stepper()
    >>> x, state = torch.randn(1, 5, 3), stepper.initial_state(1)
    >>> for t in range(5):
    ...     output, state = stepper(x[:, t], state)
    >>> bool(torch.allclose(output, layer(x)[0][:, -1], atol=1e-6))
    True
    """

    def __init__(self, layer: DropIn, weights: str = "fp32") -> None:
        if weights not in WEIGHTS:
            raise unknown_name("kind of weights", weights, WEIGHTS)
        if layer.bidirectional:
            raise UserError(
                "A bidirectional layer cannot take one step at a time: its backward direction needs the future.",
                "Use bidirectional=False, or run the layer on whole sequences.",
            )
        self.input_size, self.weights = layer.input_size, weights
        self._sizes = layer._state_sizes()
        self._layers = layer.num_layers
        self._combine = layer.combine
        self._combine_weight = getattr(layer, "combine_weight").detach().clone() if layer.combine == "mix" else None  # noqa: B009
        self._keep = tuple(layer.zoneout)
        names = layer.cell_class.state_names if layer.learned_state else ()
        self._learned = [getattr(layer, f"initial_{name}").detach().clone() for name in names]
        self._cells = [_cell(layer, name) for name in layer._run_names()]
        self._batch = -1
        self._shapes: tuple[torch.Size, tuple[torch.Size, ...]] = (torch.Size(), ())
        self._reason = self._why_not_native()
        if self._reason is None:
            self._native = self._packed()
        elif weights != "fp32":
            raise UserError(
                f"weights={weights!r} needs the native engine, which cannot run this: {self._reason}.",
                "Use weights='fp32', which runs everywhere.",
            )

    def __repr__(self) -> str:
        how = "native" if self._reason is None else f"torch: {self._reason}"
        return f"Stepper({self.input_size}, layers={self._layers}, weights={self.weights!r}, engine={how})"

    def initial_state(self, batch_size: int) -> State:
        """The state before the first step: zeros, or what the layer has learned; (B, L, size) each."""
        if self._learned:
            return tuple(p.expand(batch_size, -1, -1).contiguous() for p in self._learned)
        like = self._cells[0].weight_hh
        return tuple(like.new_zeros(batch_size, self._layers, size) for size in self._sizes)

    def __call__(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """One step: x (B, D) and the state → output (B, O) and the new state."""
        # a step is microseconds, and so is a torch call: one comparison each, and the reasons only when one fails
        batch = x.shape[0]
        if batch != self._batch:
            self._expect(batch)
        if x.shape != self._shapes[0] or tuple([s.shape for s in state]) != self._shapes[1]:
            self._refuse_shapes(x, state)
        if self._reason is not None:
            return self._torch_step(x, state)
        if x.dtype is not torch.float32 or not x.is_contiguous():
            x = _float32("input", x)
        h = state[0]
        if h.dtype is not torch.float32 or not h.is_contiguous():
            h = _float32("state", h)
        new_h = torch.empty_like(h)
        if len(state) == 1:
            self._native.step(batch, x.data_ptr(), h.data_ptr(), 0, new_h.data_ptr(), 0, torch.get_num_threads())
            return self._output(new_h), (new_h,)
        c = state[1]
        if c.dtype is not torch.float32 or not c.is_contiguous():
            c = _float32("state", c)
        new_c = torch.empty_like(c)
        self._native.step(
            batch, x.data_ptr(), h.data_ptr(), c.data_ptr(), new_h.data_ptr(), new_c.data_ptr(), torch.get_num_threads()
        )
        return self._output(new_h), (new_h, new_c)

    def _expect(self, batch: int) -> None:
        """The shapes of x and the states for this many sequences."""
        self._batch = batch
        states = tuple(torch.Size((batch, self._layers, size)) for size in self._sizes)
        self._shapes = (torch.Size((batch, self.input_size)), states)

    def _refuse_shapes(self, x: Tensor, state: State) -> None:
        if x.shape != self._shapes[0]:
            raise UserError(
                f"The input has shape {tuple(x.shape)}.",
                f"Expected (batch, {self.input_size}): one step of each sequence.",
            )
        raise UserError(
            f"The state has shapes {[tuple(s.shape) for s in state]}.",
            f"Expected {[tuple(s) for s in self._shapes[1]]}: (batch, layers, size); see initial_state().",
        )

    def _output(self, h: Tensor) -> Tensor:
        if self._layers == 1 and self._combine != "concat":
            return h.squeeze(1)
        if self._combine == "last":
            return h.select(1, self._layers - 1)
        return combine([h[:, i : i + 1] for i in range(self._layers)], self._combine, self._combine_weight).squeeze(1)

    def _why_not_native(self) -> str | None:
        if "native" not in ENGINES:
            return f"it is not built ({NOT_BUILT['native']})"
        for cell in self._cells:
            x = cell.weight_ih.new_zeros(1, 1, cell.weight_ih.shape[1])
            state = tuple(x.new_zeros(1, size) for size in self._sizes)
            reason: str | None = ENGINES["native"].refuses(Job(cell, x, state))
            if reason is not None:
                return reason
        return None

    def _packed(self) -> Any:
        from unrolled.kernels import _native
        from unrolled.kernels.native import kind_of

        packed = _native.Stepper(WEIGHTS.index(self.weights))
        keep_h, keep_c = self._keep if len(self._keep) == 2 else (*self._keep, 0.0)
        for cell in self._cells:
            tensors = {
                field.name: getattr(cell, field.name).contiguous()
                for field in fields(cell)
                if isinstance(getattr(cell, field.name), Tensor)
            }
            previous = isinstance(cell, LSTMCell) and cell.peephole_output == "previous"
            addresses = {name: (tensor.data_ptr(), tensor.numel()) for name, tensor in tensors.items()}
            sizes = cell.weight_ih.shape[1], cell.hidden_size, cell.weight_hh.shape[1]
            packed.add_layer(kind_of(cell), *sizes, previous, keep_h, keep_c, addresses)
        return packed

    @torch.no_grad()
    def _torch_step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        new: list[State] = []
        for depth, cell in enumerate(self._cells):
            old = tuple(s[:, depth] for s in state)
            fresh = cell.step(cell.project(x), old).state
            mixed = tuple(k * o + (1 - k) * f for k, o, f in zip(self._keep, old, fresh, strict=True))
            new.append(mixed if any(self._keep) else fresh)
            x = new[-1][0]
        stacked = tuple(torch.stack(parts, dim=1) for parts in zip(*new, strict=True))
        return self._output(stacked[0]), stacked


def _float32(what: str, tensor: Tensor) -> Tensor:
    if tensor.dtype != torch.float32 or tensor.device.type != "cpu":
        raise UserError(f"The {what} is {tensor.dtype} on {tensor.device}.", "Expected torch.float32 on the CPU.")
    return tensor.contiguous()


def _cell(layer: DropIn, name: str) -> RNNCell | LSTMCell | GRUCell:
    parameters = {f"{kind}_{name}": getattr(layer, f"{kind}_{name}").detach().clone() for kind in layer._kinds()}
    cell = layer._cell_builder(name, None, None)(parameters)
    assert isinstance(cell, BuiltIn)
    return cast(RNNCell | LSTMCell | GRUCell, cell)
