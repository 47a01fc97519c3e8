"""A plan of a graph: what it computes, its inputs and outputs, and how inputs are drawn to check it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from unrolled.export.recording import Argument, Compute
from unrolled.search import Shared

Draw = Callable[[Mapping[str, int], torch.Generator], Sequence[Tensor]]
"""Sizes by name → random inputs of a graph with these sizes."""


@dataclass(frozen=True)
class GraphPlan:
    """One graph. `free` has the names of the free sizes of each input, by axis.

    The inputs `state_k` and the outputs `new_state_k` are carried from call to call; the inputs `shared_k` stay as
    they are, with one row for several of the others.
    """

    name: str
    compute: Compute
    draw: Draw
    inputs: Sequence[str]
    outputs: Sequence[str]
    free: Mapping[str, Mapping[int, str]]
    drawn_by: Sequence[str] = ()  # sizes that `draw` needs beside the free ones
    network: nn.Module | None = None  # that has the weights; None: the model's

    @property
    def sizes(self) -> list[str]:
        """The names of the sizes that inputs are drawn with."""
        return sorted({name for axes in self.free.values() for name in axes.values()} | set(self.drawn_by))

    def arguments(self) -> list[Argument]:
        """The inputs with examples, in which no two free sizes are equal by accident."""
        sizes = {name: 3 + 2 * place for place, name in enumerate(self.sizes)}
        if "rows" in sizes:
            sizes["rows"] = 2 * sizes["batch"]
        drawn = self.draw(sizes, torch.Generator().manual_seed(0))
        return [
            Argument(name, example, dict(self.free.get(name, {})))
            for name, example in zip(self.inputs, drawn, strict=True)
        ]


@dataclass(frozen=True)
class GraphPlans:
    """All graphs of a model, and entries of the manifest that only its task has."""

    graphs: Sequence[GraphPlan]
    more: Mapping[str, Any] = field(default_factory=dict)


def whole(high: int, generator: torch.Generator, *shape: int, low: int = 0) -> Tensor:
    """Random whole numbers from `low` up to, and without, `high`."""
    return torch.randint(low, max(high, low + 1), shape, generator=generator)


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    """Random numbers of mean 0 and variance 1."""
    return torch.randn(shape, generator=generator)


def ragged(steps: int, generator: torch.Generator, rows: int) -> Tensor:
    """Random lengths from 1 to `steps`; one row is full."""
    lengths = whole(steps + 1, generator, rows, low=1)
    lengths[int(whole(rows, generator, 1))] = steps
    return lengths


def leaves(state: Any, shared: bool = False) -> tuple[list[Tensor], list[Tensor]]:
    """The tensors of a state in order: those of the rows, and those that are shared; empty ones are left out."""
    if isinstance(state, Shared):
        return [], [one for part in leaves(state.value) for one in part]
    if isinstance(state, Tensor):
        # a cache of no steps grows, a layer that is not there never does
        return ([] if 0 in state.shape[1:2] and state.dim() == 3 else [state]), []
    found: tuple[list[Tensor], list[Tensor]] = ([], [])
    for part in state or ():
        for into, one in zip(found, leaves(part), strict=True):
            into.extend(one)
    return found


def rebuilt(like: Any, rows: list[Tensor], shared: list[Tensor]) -> Any:
    """A state like another, from the tensors that `leaves` gives; both lists are used up."""
    if like is None:
        return None
    if isinstance(like, Shared):
        return Shared(rebuilt(like.value, shared, []))
    if isinstance(like, Tensor):
        if 0 in like.shape[1:2] and like.dim() == 3:
            return rows[0].new_zeros(rows[0].shape[0], *like.shape[1:]) if rows else like
        return rows.pop(0)
    parts = [rebuilt(part, rows, shared) for part in like]
    return type(like)(*parts) if hasattr(like, "_fields") else tuple(parts)


def numbered(stem: str, count: int) -> list[str]:
    """stem_0, stem_1, …"""
    return [f"{stem}_{number}" for number in range(count)]
