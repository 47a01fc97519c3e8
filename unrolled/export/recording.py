"""Records what a network computes as a graph of torch's operators, in which a recurrent layer is one operator."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.export import export as export_program

from unrolled.errors import UserError
from unrolled.nn.dropin import DropIn
from unrolled.nn.recurrent import Recurrent

Compute = Callable[..., Tensor | tuple[Tensor, ...]]


@dataclass(frozen=True)
class Argument:
    """An input of a graph: its name, an example, and the names of its free sizes by axis."""

    name: str
    example: Tensor
    free: dict[int, str]


@dataclass(frozen=True)
class Recorded:
    """A recorded computation, and the layers that stand in it by name."""

    program: ExportedProgram
    layers: dict[str, DropIn | Recurrent]


@torch.library.custom_op("unrolled_export::layer", mutates_args=())
def recurrent_layer_op(
    x: Tensor, state: list[Tensor], lengths: Tensor | None, name: str, sizes: list[int]
) -> list[Tensor]:
    """A recurrent layer by name: x (B, T, D) → output (B, T, O) and final states (L·directions, B, size)."""
    raise NotImplementedError("It is recorded, never run.")


@recurrent_layer_op.register_fake
def _(x: Tensor, state: list[Tensor], lengths: Tensor | None, name: str, sizes: list[int]) -> list[Tensor]:
    width, runs, *states = sizes
    return [x.new_empty(x.shape[0], x.shape[1], width), *(x.new_empty(runs, x.shape[0], size) for size in states)]


def record(network: nn.Module, compute: Compute, arguments: Sequence[Argument]) -> Recorded:
    """Record `compute(*tensors)`, which calls the network, for any values of the free sizes."""
    layers = {name: module for name, module in network.named_modules() if isinstance(module, (DropIn, Recurrent))}
    shapes = tuple(dict.fromkeys(argument.free, Dim.AUTO) or None for argument in arguments)
    # with gradients, so that no engine of ours stands in for torch's operators
    with torch.enable_grad(), warnings.catch_warnings(), _standing_for(layers):
        warnings.simplefilter("ignore")  # torch's own, about its inside
        program = export_program(
            _Computing(network, compute).eval(),
            tuple(argument.example for argument in arguments),
            dynamic_shapes=(shapes,),
            strict=False,
        )
        # torch's own check of sizes mixes up inputs from the eleventh on
        program.module = partial(program.module, check_guards=False)  # type: ignore[method-assign]
        return Recorded(program.run_decompositions(), layers)


class _Computing(nn.Module):
    def __init__(self, network: nn.Module, compute: Compute) -> None:
        super().__init__()
        self.network, self._compute = network, compute

    def forward(self, *tensors: Tensor) -> Any:
        return self._compute(*tensors)


@contextmanager
def _standing_for(layers: dict[str, DropIn | Recurrent]) -> Iterator[None]:
    """A block in which recurrent layers record themselves as one operator each."""
    for name, layer in layers.items():
        layer.forward = _recorded_forward(layer, name)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers.values():
            del layer.forward  # the class's again


def _recorded_forward(layer: DropIn | Recurrent, name: str) -> Callable[..., Any]:
    """The layer's forward pass as one operator, in the layout of its own."""

    def recorded(x: Tensor, state: list[Tensor], lengths: Tensor | None, resets: Tensor | None) -> list[Tensor]:
        if resets is not None:
            raise UserError(f"{name} has resets, which an exported graph does not take.", "Call it without.")
        return torch.ops.unrolled_export.layer(x, state, lengths, name, _sizes(layer))  # type: ignore[no-any-return]

    def as_drop_in(
        input: Tensor, hx: Any = None, lengths: Tensor | None = None, resets: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        assert isinstance(layer, DropIn)
        x = input if layer.batch_first else input.transpose(0, 1)
        fresh = hx is None and not layer.learned_state
        state = [] if fresh else [one.contiguous() for one in layer._states(hx, x, unbatched=False)]
        output, *final = recorded(x, state, lengths, resets)
        return output if layer.batch_first else output.transpose(0, 1), tuple(final) if len(final) > 1 else final[0]

    def as_recurrent(
        x: Tensor, state: Any = None, *, lengths: Tensor | None = None, resets: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        assert isinstance(layer, Recurrent)
        fresh = state is None and not layer.learned_state
        given = [] if fresh else [one.transpose(0, 1).contiguous() for one in layer._initial(x, state)]
        output, *final = recorded(x, given, lengths, resets)
        return output, tuple(one.transpose(0, 1) for one in final)

    return as_drop_in if isinstance(layer, DropIn) else as_recurrent


def _sizes(layer: DropIn | Recurrent) -> list[int]:
    """The width of the output, the number of layers and directions, and the width of each state."""
    if isinstance(layer, DropIn):
        width, runs, states = layer.proj_size or layer.hidden_size, len(layer._run_names()), layer._state_sizes()
    else:
        width, runs, states = layer._cell.output_size, len(layer.cells), layer._cell.state_sizes
    width *= 2 if layer.bidirectional else 1
    return [width * (layer.num_layers if layer.combine == "concat" else 1), runs, *states]
