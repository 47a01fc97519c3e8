"""Stacks of a custom cell."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from unrolled.cells import Cell, CellOf, State, Step, Trace
from unrolled.cells.base import CellAround
from unrolled.errors import UserError
from unrolled.kernels import Choice, check_engine, choose
from unrolled.kernels.lengths import check_lengths
from unrolled.nn.checks import (
    check_choice,
    check_input,
    check_options,
    check_probability,
    check_resets,
    check_sizes,
    check_state,
    check_steps,
)
from unrolled.nn.stack import (
    COMBINATIONS,
    DirectionRun,
    Stacked,
    combine,
    run_stack,
    suffix,
    traced_cells,
    variational_mask,
    zoneout_keep,
)


class Recurrent(nn.Module):
    """Runs any `Cell` over time, in layers and in both directions.

    `cell` is called as `cell(input_size, hidden_size)` for each layer and direction. Input and output are batch first:
    x (B, T, D) → output (B, T, O) and the final state, a tuple with one (B, L·directions, size) tensor for each of
    the cell's states. `variational_dropout` masks each layer's input, one mask for all steps.

    >>> class Sum(Cell):
    ...     def step(self, gates_x, state):
    ...         h = state[0] + gates_x
    ...         return h, (h,)
    >>> layer = Recurrent(Sum, 2, 2)
    >>> output, (h,) = layer(torch.ones(1, 4, 2), resets=torch.tensor([[True, False, True, False]]))
    >>> output[0, :, 0]
    tensor([1., 2., 1., 2.])
    """

    def __init__(
        self,
        cell: Callable[[int, int], Cell],
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        bidirectional: bool = False,
        dropout: float = 0.0,
        variational_dropout: float = 0.0,
        zoneout: float = 0.0,
        learned_state: bool = False,
        combine: str = "last",
        backend: str = "auto",
        **unknown: Any,
    ) -> None:
        super().__init__()
        known = [name for name in inspect.signature(Recurrent).parameters if name != "unknown"]
        check_options("Recurrent", unknown, known)
        if isinstance(cell, nn.Module):
            name = type(cell).__name__
            raise UserError(f"cell is a {name} that is made already.", f"Give its class: Recurrent({name}, …).")
        check_sizes(input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bidirectional = bidirectional
        self.dropout = check_probability("dropout", dropout)
        self.variational_dropout = check_probability("variational_dropout", variational_dropout)
        self.zoneout = check_probability("zoneout", zoneout)
        self.combine = check_choice("combination", combine, COMBINATIONS)
        self.learned_state = learned_state
        self.backend = check_engine(backend)
        self.cells = nn.ModuleDict()
        width = input_size
        for depth in range(num_layers):
            layer = [cell(width, hidden_size) for _ in self._directions()]
            for reverse, made in zip(self._directions(), layer, strict=True):
                if not isinstance(made, Cell):
                    raise UserError(
                        f"cell(input_size, hidden_size) gave a {type(made).__name__}.",
                        "Expected a class derived from unrolled.Cell.",
                    )
                self.cells[suffix(depth, reverse)] = made
            width = sum(made.output_size for made in layer)
        if learned_state:
            for name, size in zip(self._cell.state_names, self._cell.state_sizes, strict=True):
                self.register_parameter(f"initial_{name}", nn.Parameter(torch.zeros(len(self.cells), size)))
        if combine == "mix":
            self.combine_weight = nn.Parameter(torch.zeros(num_layers))

    def _directions(self) -> tuple[bool, ...]:
        return (False, True) if self.bidirectional else (False,)

    @property
    def _dropout(self) -> float:
        return self.dropout if self.training else 0.0

    @property
    def _cell(self) -> Cell:
        cell = self.cells["l0"]
        assert isinstance(cell, Cell)
        return cell

    def forward(
        self,
        x: Tensor,
        state: State | None = None,
        *,
        lengths: Tensor | Iterable[int] | None = None,
        resets: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """x (B, T, D) → output (B, T, O) and the final state; `lengths` (B,), `resets` (B, T) or (B,)."""
        x, lengths, resets = self._checked(x, lengths, resets)
        return self._close(run_stack(self._runs(x, state), x, lengths, resets, self._dropout, self.backend))

    def trace(
        self,
        x: Tensor,
        state: State | None = None,
        *,
        lengths: Tensor | Iterable[int] | None = None,
        resets: Tensor | None = None,
    ) -> Trace:
        """Runs the layer and keeps every state and gate: see `Trace`."""
        x, lengths, resets = self._checked(x, lengths, resets)
        layers = self._runs(x, state)
        job = layers[0][0].job(x, lengths, resets)
        engine = choose(job, self.backend, traced=True).engine
        stacked = run_stack(layers, x, lengths, resets, self._dropout, engine, first=(job, engine), traced=True)
        return Trace(*self._close(stacked), stacked.scans, traced_cells(layers), engine)

    def backend_for(
        self,
        x: Tensor,
        state: State | None = None,
        *,
        lengths: Tensor | Iterable[int] | None = None,
        resets: Tensor | None = None,
    ) -> Choice:
        """The engine that `forward` would run on with these arguments, and why."""
        x, lengths, resets = self._checked(x, lengths, resets)
        return choose(self._runs(x, state)[0][0].job(x, lengths, resets), self.backend)

    def _checked(
        self, x: Tensor, lengths: Tensor | Iterable[int] | None, resets: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        check_input("Recurrent", x, self.input_size, next(self.parameters(), x))
        if x.dim() != 3:
            raise UserError(f"The input has shape {tuple(x.shape)}.", "Expected (batch, time, features).")
        batch, steps = x.shape[:2]
        check_steps(steps)
        if lengths is not None:
            lengths = check_lengths(lengths, batch, steps, x.device)
        if resets is not None:
            resets = check_resets(resets, batch, steps, time_first=False, device=x.device)
        return x, lengths, resets

    def _initial(self, x: Tensor, state: State | None) -> State:
        names, sizes, batch = self._cell.state_names, self._cell.state_sizes, x.shape[0]
        if state is None:
            learned = self._learned(batch)
            return learned or tuple(x.new_zeros(batch, len(self.cells), size) for size in sizes)
        if not isinstance(state, (tuple, list)) or len(state) != len(names):
            raise UserError(
                f"The initial state is a {type(state).__name__}.", f"Expected a tuple ({', '.join(names)})."
            )
        for name, size, tensor in zip(names, sizes, state, strict=True):
            shape = (batch, len(self.cells), size)
            check_state(name, tensor, shape, "(batch, layers · directions, size)", x)
        return tuple(state)

    def _learned(self, batch: int) -> State | None:
        if not self.learned_state:
            return None
        learned = [getattr(self, f"initial_{name}") for name in self._cell.state_names]
        return tuple(p.expand(batch, -1, -1) for p in learned)

    def _runs(self, x: Tensor, state: State | None) -> list[list[DirectionRun]]:
        initial, learned = self._initial(x, state), self._learned(x.shape[0])
        rates = [self.zoneout] * len(self._cell.state_names)
        drop_input = self.variational_dropout if self.training else 0.0
        runs = []
        for index, (name, cell) in enumerate(self.cells.items()):
            assert isinstance(cell, Cell)
            runs.append(
                DirectionRun(
                    name=name,
                    cell=cell,
                    cell_of=_cell_builder(f"cells.{name}.", cell),
                    parameters={f"cells.{name}.{key}": p for key, p in cell.named_parameters()},
                    state=tuple(s[:, index] for s in initial),
                    reverse=name.endswith("_reverse"),
                    reset_state=tuple(s[:, index] for s in learned) if learned else None,
                    keep=zoneout_keep(rates, cell.state_sizes, x, self.training),
                    input_mask=variational_mask(drop_input, x, x.shape[0], 1, cell.input_size),
                )
            )
        directions = len(self._directions())
        return [runs[i : i + directions] for i in range(0, len(runs), directions)]

    def _close(self, stacked: Stacked) -> tuple[Tensor, State]:
        output = combine(stacked.outputs, self.combine, getattr(self, "combine_weight", None))
        final = tuple(torch.stack(parts, dim=1) for parts in zip(*stacked.states.values(), strict=True))
        return output, final


@dataclass(frozen=True)
class _WithParameters(CellAround):
    """A cell with other parameters: `Trace` gives every step its own copy of them."""

    cell: Cell
    parameters: dict[str, Tensor]

    def project(self, x: Tensor) -> Tensor:
        return x  # `step` projects

    def step(self, gates_x: Tensor, state: State) -> Step:
        step: Step = functional_call(self.cell, self.parameters, (gates_x, state))
        return step


def _cell_builder(prefix: str, cell: Cell) -> CellOf:
    def cell_of(parameters: Mapping[str, Tensor]) -> _WithParameters:
        return _WithParameters(cell, {key.removeprefix(prefix): value for key, value in parameters.items()})

    return cell_of
