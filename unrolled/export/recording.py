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
    layers: dict[str, DropIn]


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
    layers = {name: module for name, module in network.named_modules() if isinstance(module, DropIn)}
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
def _standing_for(layers: dict[str, DropIn]) -> Iterator[None]:
    """A block in which recurrent layers record themselves as one operator each."""
    for name, layer in layers.items():
        layer.forward = _recorded_forward(layer, name)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers.values():
            del layer.forward  # the class's again


def _recorded_forward(layer: DropIn, name: str) -> Callable[..., Any]:
    def forward(input: Tensor, hx: Any = None, lengths: Tensor | None = None, resets: Tensor | None = None) -> Any:
        if resets is not None:
            raise UserError(f"{name} has resets, which an exported graph does not take.", "Call it without.")
        fresh = hx is None and not layer.learned_state
        state = [] if fresh else [one.contiguous() for one in layer._states(hx, input, unbatched=False)]
        width = (layer.proj_size or layer.hidden_size) * (2 if layer.bidirectional else 1)
        width *= layer.num_layers if layer.combine == "concat" else 1
        sizes = [width, len(layer._run_names()), *layer._state_sizes()]
        output, *final = torch.ops.unrolled_export.layer(input, state, lengths, name, sizes)
        return output, tuple(final) if len(final) > 1 else final[0]

    return forward
