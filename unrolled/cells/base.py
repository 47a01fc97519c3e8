"""The base of all cells: one time step, its state and its gates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unrolled.cells.activations import Activation
from unrolled.cells.apart import linear

State = tuple[Tensor, ...]
"""A cell's state: one (B, size) tensor for each of its state names; the first is h."""


class Step(NamedTuple):
    """The results of one step: an output (B, O), the new state, and the gates in the order of `gate_names`.

    A cell whose output is its first state, as in all textbook cells, returns the same tensor for both.
    """

    output: Tensor
    state: State
    gates: tuple[Tensor, ...] = ()


@runtime_checkable
class AnyCell(Protocol):
    """The protocol of a cell for `kernels.scan`."""

    @property
    def state_names(self) -> tuple[str, ...]: ...
    @property
    def state_sizes(self) -> tuple[int, ...]: ...
    @property
    def gate_names(self) -> tuple[str, ...]: ...
    def project(self, x: Tensor) -> Tensor:
        """The part of a step that does not wait for the state, for all steps at once: (B, T, D) → (B, T, G)."""
        ...

    def step(self, gates_x: Tensor, state: State) -> tuple[Any, ...]:
        """One step: (B, G) and the state → output, new state and, if the cell has any, gates (see `Step`)."""
        ...


class Cell(nn.Module):
    """The base of a custom cell: with a `step` it can be stacked, bidirectional, trained and traced.

    `step` returns `output, state` or `output, state, gates`. `project` may do the work that does not need the
    state, for all time steps in one product; by default `step` gets the input itself.

    >>> class Leaky(Cell):
    ...     '''h_t = a∘h_{t-1} + (1 - a)∘tanh(W x_t), a = σ(U h_{t-1}).'''
    ...     gate_names = ("a",)
    ...     def __init__(self, input_size: int, hidden_size: int) -> None:
    ...         super().__init__(input_size, hidden_size)
    ...         self.w = nn.Linear(input_size, hidden_size)
    ...         self.u = nn.Linear(hidden_size, hidden_size)
    ...     def project(self, x):
    ...         return torch.tanh(self.w(x))
    ...     def step(self, gates_x, state):
    ...         (h,) = state
    ...         a = torch.sigmoid(self.u(h))
    ...         h = a * h + (1 - a) * gates_x
    ...         return h, (h,), (a,)
    >>> cell = Leaky(3, 5)
    >>> cell(torch.ones(2, 3), cell.initial_state(2)).output.shape
    torch.Size([2, 5])
    """

    state_names: tuple[str, ...] = ("h",)
    gate_names: tuple[str, ...] = ()

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """The width of each state: `hidden_size` unless overridden."""
        return (self.hidden_size,) * len(self.state_names)

    @property
    def output_size(self) -> int:
        """The width of the output, which the next layer reads."""
        return self.state_sizes[0]

    def project(self, x: Tensor) -> Tensor:
        return x

    def step(self, gates_x: Tensor, state: State) -> tuple[Any, ...]:
        raise TypeError(
            f"{type(self).__name__} has no step. Write `def step(self, gates_x, state)` "
            "that returns `output, state` or `output, state, gates`."
        )

    def initial_state(self, batch_size: int, like: Tensor | None = None) -> State:
        """Zeros: the state before the first step."""
        like = like if like is not None else next(self.parameters())
        return tuple(like.new_zeros(batch_size, size) for size in self.state_sizes)

    def forward(self, x: Tensor, state: State) -> Step:
        """One step from the input itself: x (B, D)."""
        return Step(*self.step(self.project(x), state))


@dataclass(frozen=True)
class BuiltIn:
    """The base of the built-in cells: torch's weights, and the two products of a step.

    Built per call from a layer's parameters. Random masks are sampled outside and passed as tensors.
    """

    weight_ih: Tensor  # (G·H, D)
    weight_hh: Tensor  # (G·H, P), P the width of h
    bias_ih: Tensor | None = None  # (G·H,)
    bias_hh: Tensor | None = None
    norm_ih: Tensor | None = None  # (G·H,) gains of layer norm; the biases are its shifts
    norm_hh: Tensor | None = None
    hidden_mask: Tensor | None = None  # (B, P), mask of h_{t-1} in the recurrent product (variational dropout)
    activation: Activation = torch.tanh

    state_names: ClassVar[tuple[str, ...]] = ("h",)
    gate_names: ClassVar[tuple[str, ...]] = ()

    @property
    def hidden_size(self) -> int:
        return self.weight_hh.shape[0] // max(len(self.gate_names), 1)

    @property
    def state_sizes(self) -> tuple[int, ...]:
        return (self.weight_hh.shape[1],)

    def project(self, x: Tensor) -> Tensor:
        """W x + b for all steps at once; with layer norm LN(W x) instead of W x."""
        return normed_linear(x, self.weight_ih, self.bias_ih, self.norm_ih)

    def masked(self, h: Tensor) -> Tensor:
        """h with the mask of variational dropout."""
        return h if self.hidden_mask is None else h * self.hidden_mask

    def recurrent(self, h: Tensor) -> Tensor:
        """U h + b; with layer norm LN(U h) instead of U h."""
        return normed_linear(self.masked(h), self.weight_hh, self.bias_hh, self.norm_hh)


@dataclass(frozen=True)
class CellAround:
    """The base of cells around another cell: they have its states and gates."""

    cell: AnyCell

    @property
    def state_names(self) -> tuple[str, ...]:
        return self.cell.state_names

    @property
    def state_sizes(self) -> tuple[int, ...]:
        return self.cell.state_sizes

    @property
    def gate_names(self) -> tuple[str, ...]:
        return self.cell.gate_names


def normed_linear(x: Tensor, weight: Tensor, bias: Tensor | None, gain: Tensor | None) -> Tensor:
    """`W x + b`, or `g∘LN(W x) + b` with a gain (Ba, Kiros & Hinton 2016)."""
    if gain is None:
        return linear(x, weight, bias)
    return F.layer_norm(linear(x, weight), gain.shape, gain, bias)
