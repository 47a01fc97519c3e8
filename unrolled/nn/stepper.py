"""Streaming: a layer that runs one step at a time on packed weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from unrolled.cells import AnyCell, BuiltIn, GRUCell, LSTMCell, RNNCell, State
from unrolled.errors import UserError, unknown_name
from unrolled.kernels import ENGINES, NOT_BUILT
from unrolled.kernels.recurrence.cuda import engine as cuda
from unrolled.kernels.recurrence.cuda.single_step import FusedStream
from unrolled.kernels.recurrence.scan_job import ScanJob
from unrolled.nn.stack import combine
from unrolled.nn.stepper_graph import CapturedStep
from unrolled.nn.watch import Watch

if TYPE_CHECKING:
    from unrolled.nn.dropin import DropIn

WEIGHTS = ("fp32", "fp16", "int16", "int8")


class Stepper:
    """A layer's step for streaming: x (B, D) and the state in, the output (B, O) and the state out.

    Made by `layer.stepper(weights=...)`. It computes the layer in evaluation mode, without gradients. The weights are
    copied and packed on construction. If an optimizer's step or `load_state_dict` changes the layer's weights later,
    the next step raises an error: make a new stepper. Replaced parameters or `data` are noticed when a sequence begins
    (`initial_state`, `stream`). In-place writes to `parameter.data` are invisible to torch and not noticed.

    `weights` is the format of the weights: "fp32"; "fp16", half the memory; "int16", half the memory and faster, with
    one scale per row and inputs rounded to 14 bits; or "int8", a quarter, with inputs rounded to 8 bits. States and
    gates are always float32. On a GPU the weights keep their format, and the first step is captured in a CUDA graph;
    with backend="cuda" it uses the kernels of docs/cuda.md, without a graph if each layer is a single kernel.

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
        kept = {name: getattr(layer, name).detach().clone() for name in _names(layer)}
        self._watch = Watch(layer, kept)
        self._combine_weight = kept.get("combine_weight")
        self._keep = tuple(layer.zoneout)
        self._learned = [tensor for name, tensor in kept.items() if name.startswith("initial_")]
        self._cells = [_cell(layer, name, kept) for name in layer._run_names()]
        self._reason = self._why_not_native()
        self._on_cuda = layer.backend == "cuda"
        self._captured: dict[int, CapturedStep | FusedStream] = {}  # by batch size
        self._step: Callable[[Tensor, State], tuple[Tensor, State] | None] = self._torch_step
        if self._cells[0].weight_hh.device.type == "cuda":
            self._step = self._graph_step
        if self._reason is None:
            self._native = self._packed()
            self._step = self._native.step if self._gives_last else self._combined_step
        elif weights != "fp32":
            raise UserError(
                f"weights={weights!r} needs the native engine, which cannot run this: {self._reason}.",
                "Use weights='fp32', which runs everywhere.",
            )

    def __repr__(self) -> str:
        how = "native" if self._reason is None else f"torch: {self._reason}"
        if self._cells[0].weight_hh.device.type == "cuda":
            how = "cuda" if self._on_cuda else "a CUDA graph of torch"
        return f"Stepper({self.input_size}, layers={self._layers}, weights={self.weights!r}, engine={how})"

    def initial_state(self, batch_size: int) -> State:
        """The state before the first step: zeros, or the learned state; (B, L, size) each."""
        self._watch.check()
        if self._learned:
            return tuple(p.expand(batch_size, -1, -1).contiguous() for p in self._learned)
        like = self._cells[0].weight_hh
        return tuple(like.new_zeros(batch_size, self._layers, size) for size in self._sizes)

    def __call__(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """One step: x (B, D) and the state → output (B, O) and the new state."""
        # checks take as long as the step itself, so they run only if it was refused
        result = self._step(x, state)
        return self._checked_step(x, state) if result is None else result

    def stream(self, batch_size: int = 1) -> LayerStream:
        """A stream of `batch_size` sequences that keeps its own state: see `LayerStream`."""
        return LayerStream(self, batch_size)

    def _checked_step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """The step on contiguous copies of its inputs, or an error that names the wrong one."""
        self._watch.check()
        self._check_input(x)
        self._check_state(state, x.shape[0])
        state = tuple(_float32("state", s) for s in state)
        result = self._step(_float32("input", x), state)
        assert result is not None
        return result

    def _check_input(self, x: Tensor, batch_size: int | None = None) -> None:
        if x.dim() == 2 and x.shape[1] == self.input_size and batch_size in (None, x.shape[0]):
            return
        batch = "batch" if batch_size is None else batch_size
        raise UserError(
            f"The input has shape {tuple(x.shape)}.",
            f"Expected ({batch}, {self.input_size}): one step of each sequence.",
        )

    def _check_state(self, state: State, batch_size: int) -> None:
        expected = [(batch_size, self._layers, size) for size in self._sizes]
        if [tuple(s.shape) for s in state] != expected:
            raise UserError(
                f"The state has shapes {[tuple(s.shape) for s in state]}.",
                f"Expected {expected}: (batch, layers, size); see initial_state().",
            )

    @property
    def _gives_last(self) -> bool:
        return self._combine == "last" or (self._layers == 1 and self._combine != "concat")

    def _output(self, h: Tensor) -> Tensor:
        if self._gives_last:
            return h.select(1, self._layers - 1)
        return combine([h[:, i : i + 1] for i in range(self._layers)], self._combine, self._combine_weight).squeeze(1)

    def _why_not_native(self) -> str | None:
        if "native" not in ENGINES:
            return f"it is not built ({NOT_BUILT['native']})"
        if not ENGINES["native"].TAKES_TENSORS:
            return "this torch does not hand tensors to C"
        for cell in self._cells:
            x = cell.weight_ih.new_zeros(1, 1, cell.weight_ih.shape[1])
            state = tuple(x.new_zeros(1, size) for size in self._sizes)
            reason: str | None = ENGINES["native"].refuses(ScanJob(cell, x, state))
            if reason is not None:
                return reason
        return None

    def _packed(self) -> Any:
        from unrolled.kernels import _native
        from unrolled.kernels.recurrence.native_cells import kind_of

        packed = _native.Stepper(WEIGHTS.index(self.weights))
        packed.look_at(self._watch.watched, self._watch.seen)
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
            kind = kind_of(cell)
            assert kind is not None
            packed.add_layer(kind, *sizes, previous, keep_h, keep_c, addresses)
        return packed

    def _native_stream(self, batch_size: int) -> Any:
        """A stream inside the native engine; None if it cannot compute the output."""
        if self._reason is not None or not self._gives_last:
            return None
        from unrolled.kernels import _native

        return _native.Stream(self._native, batch_size)

    def _combined_step(self, x: Tensor, state: State) -> tuple[Tensor, State] | None:
        result: tuple[Tensor, State] | None = self._native.step(x, state)
        return None if result is None else (self._output(result[1][0]), result[1])

    def _graph_step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        self._watch.look()
        self._check_input(x)
        self._check_state(state, x.shape[0])
        if x.shape[0] not in self._captured:
            self._captured[x.shape[0]] = self._capture(x.shape[0])
        captured = self._captured[x.shape[0]]
        captured.state = state
        return captured.feed(x), captured.state

    def _capture(self, batch_size: int) -> CapturedStep | FusedStream:
        """The step on a GPU: launched directly if each layer is one kernel, else captured."""
        x, state = self._cells[0].weight_ih.new_zeros(batch_size, self.input_size), self.initial_state(batch_size)
        if self._on_cuda and self._gives_last and not any(self._keep):
            first = ScanJob(self._cells[0], x[:, None], tuple(s[:, 0] for s in state))
            direct = None if cuda.refuses(first) else cuda.stream(cast("list[BuiltIn]", self._cells), batch_size, state)
            if direct is not None:
                return direct
        return CapturedStep(self._torch_step, x, state)

    @torch.no_grad()
    def _torch_step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        self._watch.look()
        self._check_input(x)
        self._check_state(state, x.shape[0])
        new: list[State] = []
        for depth, cell in enumerate(self._cells):
            old = tuple(s[:, depth] for s in state)
            fresh = self._fresh(cell, x, old)
            mixed = tuple(k * o + (1 - k) * f for k, o, f in zip(self._keep, old, fresh, strict=True))
            new.append(mixed if any(self._keep) else fresh)
            x = new[-1][0]
        states = zip(*new, strict=True)
        stacked = tuple(p[0][:, None] if len(p) == 1 else torch.stack(p, dim=1) for p in states)
        return self._output(stacked[0]), stacked

    def _fresh(self, cell: AnyCell, x: Tensor, old: State) -> State:
        """The state after one layer's step, without zoneout."""
        if self._on_cuda:
            return cuda.step(ScanJob(cell, x[:, None], old))
        fresh: State = cell.step(cell.project(x), old)[1]
        return fresh


class LayerStream:
    """Sequences that run step by step and keep their own state: the lowest latency from input to output.

    Made by `stepper.stream(batch_size)`. Later steps do not change an output.

    >>> import unrolled
    >>> stream = unrolled.LSTM(3, 4).stepper().stream()
    >>> for x in torch.randn(5, 1, 3):
    ...     output = stream.feed(x)
    >>> tuple(output.shape)
    (1, 4)
    """

    def __init__(self, stepper: Stepper, batch_size: int = 1) -> None:
        if batch_size < 1:
            raise UserError(f"batch_size={batch_size} is not a number of sequences.", "Use 1 or more.")
        self.batch_size = batch_size
        self._stepper = stepper
        self._watch = stepper._watch
        self._native = stepper._native_stream(batch_size)
        on_gpu = stepper._cells[0].weight_hh.device.type == "cuda"
        self._captured = stepper._capture(batch_size) if on_gpu else None
        self._state: State = ()  # unless the native engine or a captured step keeps it
        self.state = stepper.initial_state(batch_size)

    def feed(self, x: Tensor) -> Tensor:
        """One step: x (B, D) → output (B, O)."""
        if self._captured is not None:
            self._watch.look()
            return self._captured.feed(self._checked(x))
        if self._native is None:
            shown, self._state = self._stepper(self._checked(x), self._state)
            return shown.clone()  # it may be a view of the state
        output: Tensor | None = self._native.feed(x)
        if output is None:
            self._watch.check()
            output = self._native.feed(_float32("input", self._checked(x)))
            assert output is not None
        return output

    @property
    def state(self) -> State:
        """The state after the last step, (B, L, size) each, as in `Stepper`; assign it to continue from another."""
        if self._captured is not None:
            return self._captured.state
        return self._state if self._native is None else self._native.state()

    @state.setter
    def state(self, state: State) -> None:
        self._stepper._check_state(state, self.batch_size)
        if self._captured is not None:
            self._captured.state = state
        elif self._native is None:
            self._state = tuple(s.clone() for s in state)
        else:
            self._native.set_state(tuple(_float32("state", s) for s in state))

    def _checked(self, x: Tensor) -> Tensor:
        self._stepper._check_input(x, self.batch_size)
        return x


def _float32(what: str, tensor: Tensor) -> Tensor:
    if tensor.dtype != torch.float32 or tensor.device.type != "cpu":
        raise UserError(f"The {what} is {tensor.dtype} on {tensor.device}.", "Expected torch.float32 on the CPU.")
    return tensor.contiguous()


def _names(layer: DropIn) -> list[str]:
    """All parameters that a step reads."""
    names = [f"{kind}_{name}" for name in layer._run_names() for kind in layer._kinds()]
    learned = [f"initial_{name}" for name in layer.cell_class.state_names] if layer.learned_state else []
    return [*names, *learned, *(["combine_weight"] if layer.combine == "mix" else [])]


def _cell(layer: DropIn, name: str, kept: dict[str, Tensor]) -> RNNCell | LSTMCell | GRUCell:
    cell = layer._cell_builder(name, None, None)(kept)
    assert isinstance(cell, BuiltIn)
    return cast(RNNCell | LSTMCell | GRUCell, cell)
