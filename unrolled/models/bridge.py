"""The initial state of a decoder from the final state of an encoder, for any two shapes."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from unrolled.cells.apart import pointwise
from unrolled.models.recurrent_settings import State
from unrolled.nn.linear import Linear

BridgeKind = Literal["auto", "linear", "zero"]


class StateShape(NamedTuple):
    """The shape of a state of stacked layers."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]  # the width of each
    layers: int
    directions: int = 1


class Bridge(nn.Module):
    """The initial state of a decoder of L layers, from an encoder's final state.

        h = tanh(W_h [h→ ; h←] + b_h),  c = W_c [c→ ; c←] + b_c        of each layer

    Layer l of the decoder uses layer l of the encoder, or the top layer if the encoder has fewer. An LSTM after a GRU
    computes its cell state c from h. `auto` copies a state of equal shape, `linear` always maps it, `zero` starts from
    zeros, or with `learned` from a state that is a parameter, so that the decoder sees the encoder through attention
    only.

    >>> bridge = Bridge(StateShape(("h", "c"), (4, 4), 2), StateShape(("h",), (6,), 1, directions=2))
    >>> [tuple(s.shape) for s in bridge((torch.zeros(3, 2, 6),))]
    [(3, 2, 4), (3, 2, 4)]
    """

    def __init__(
        self, decoder: StateShape, encoder: StateShape, kind: BridgeKind = "auto", learned: bool = False
    ) -> None:
        super().__init__()
        self.decoder, self.encoder, self.kind = decoder, encoder, kind
        self.learned = nn.ParameterDict()
        if learned and kind == "zero":
            for name, size in zip(decoder.names, decoder.sizes, strict=True):
                self.learned[name] = nn.Parameter(torch.zeros(decoder.layers, size))
        self._origins = [encoder.names.index(name) if name in encoder.names else 0 for name in decoder.names]
        self.maps = nn.ModuleDict()
        if kind == "zero":
            return
        for name, size, origin in zip(decoder.names, decoder.sizes, self._origins, strict=True):
            width = encoder.sizes[origin] * encoder.directions
            same = width == size and name in encoder.names and kind == "auto"
            for layer in range(0 if same else decoder.layers):
                self.maps[f"{name}{layer}"] = Linear(width, size)

    def forward(self, state: State) -> State:
        """(B, encoder's L·directions, H) each → (B, L, size) each."""
        if self.learned:
            return tuple(self.learned[name].expand(state[0].shape[0], -1, -1) for name in self.decoder.names)
        if self.kind == "zero":
            like = state[0]
            return tuple(like.new_zeros(like.shape[0], self.decoder.layers, size) for size in self.decoder.sizes)
        return tuple(self._made(name, state[o]) for name, o in zip(self.decoder.names, self._origins, strict=True))

    def _made(self, name: str, state: Tensor) -> Tensor:
        by_layer = state.reshape(state.shape[0], self.encoder.layers, -1)  # (B, L, directions·H)
        made = []
        for layer in range(self.decoder.layers):
            initial = by_layer[:, min(layer, self.encoder.layers - 1)]
            if f"{name}{layer}" in self.maps:
                initial = self.maps[f"{name}{layer}"](initial)
                initial = pointwise(torch.tanh, initial) if name == "h" else initial
            made.append(initial)
        return torch.stack(made, dim=1)
