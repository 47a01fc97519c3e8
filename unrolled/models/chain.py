"""Stacked recurrent layers of different sizes, with variational and word dropout."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import cast

import torch.nn.functional as F
from torch import Tensor, nn

from unrolled.cells import Trace
from unrolled.models.recurrent_settings import (
    RecurrentSettings,
    State,
    recurrent_layer,
    state_from_torch,
    state_to_torch,
)
from unrolled.nn.dropin import DropIn
from unrolled.nn.stack import variational_mask
from unrolled.nn.stepper import Stepper


def dropped(x: Tensor, p: float, same_mask: bool, training: bool) -> Tensor:
    """Dropout of x (B, T, D); `same_mask`: with one mask for all steps of a row (Gal & Ghahramani 2016)."""
    if not same_mask:
        return F.dropout(x, p, training)
    mask = variational_mask(p if training else 0.0, x, x.shape[0], 1, x.shape[2])
    return x if mask is None else x * mask


class Chain(nn.Module):
    """Layers of `sizes` units; `dropout` acts between them, with one mask for all steps if `same_mask`.

    Input and output are batch first: x (B, T, D) → (B, T, O), O the last size or that of the projection. The state is
    flat: those of the first layer, (B, 1, size) each, then those of the second, …
    """

    def __init__(
        self, settings: RecurrentSettings, input_size: int, sizes: Sequence[int], dropout: float, same_mask: bool
    ) -> None:
        super().__init__()
        self.dropout, self.same_mask, self.sizes = dropout, same_mask, tuple(sizes)
        widths = [input_size, *(settings.projection or size for size in sizes[:-1])]
        one = [settings.model_copy(update={"num_layers": 1, "combine": "last", "hidden_size": size}) for size in sizes]
        self.layers = nn.ModuleList(recurrent_layer(s, width) for s, width in zip(one, widths, strict=True))

    def each(self) -> list[DropIn]:
        return cast(list[DropIn], list(self.layers))

    def forward(
        self, x: Tensor, state: State | None, lengths: Tensor | None = None, resets: Tensor | None = None
    ) -> tuple[Tensor, State]:
        final: State = ()
        for depth, (layer, entering) in enumerate(zip(self.each(), self._split(state), strict=True)):
            if depth > 0:
                x = dropped(x, self.dropout, self.same_mask, self.training)
            x, left = layer(x, state_to_torch(entering), lengths=lengths, resets=resets)
            final += state_from_torch(left)
        return x, final

    def trace(self, x: Tensor) -> Trace:
        """Trace without dropout; layers are named l0, l1, …"""
        traces: list[Trace] = []
        for layer in self.each():
            traces.append(layer.trace(traces[-1].output if traces else x))
        return reduce(Trace.under, traces)

    def stepper(self, weights: str) -> ChainStepper:
        """A stepper for generation: see `Stepper`."""
        return ChainStepper([layer.stepper(weights) for layer in self.each()])

    def _split(self, state: State | None) -> list[State | None]:
        return [None] * len(self.sizes) if state is None else list(_parts(state, len(self.sizes)))


class ChainStepper:
    """The steppers of a chain, one after the other."""

    def __init__(self, steppers: list[Stepper]) -> None:
        self._steppers = steppers

    def initial_state(self, batch_size: int) -> State:
        return sum((stepper.initial_state(batch_size) for stepper in self._steppers), ())

    def __call__(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """One step: x (B, D) and the state → output (B, O) and the new state."""
        final: State = ()
        for stepper, entering in zip(self._steppers, _parts(state, len(self._steppers)), strict=True):
            x, left = stepper(x, tuple(part.contiguous() for part in entering))
            final += left
        return x, final


def _parts(state: State, number: int) -> list[State]:
    """A flat state cut into those of the layers."""
    each = len(state) // number
    return [state[i : i + each] for i in range(0, len(state), each)]


def dropped_words(vectors: Tensor, ids: Tensor, words: int, p: float, training: bool) -> Tensor:
    """Dropout of whole tokens: vectors (B, T, D) of ids (B, T), where a dropped token is dropped everywhere."""
    kept = variational_mask(p if training else 0.0, vectors, words, 1)
    return vectors if kept is None else vectors * kept[ids]  # (B, T, D) · (B, T, 1)
