"""The initial state of a decoder from the final state of an encoder, for any two shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from unrolled.models.recurrent_settings import State

BridgeKind = Literal["auto", "linear", "zero"]


class Bridge(nn.Module):
    """The initial state of a decoder of L layers, from an encoder's final state.

        h = tanh(W_h [h→ ; h←] + b_h),  c = W_c [c→ ; c←] + b_c        of each layer

    Layer l of the decoder uses layer l of the encoder, or the top layer if the encoder has fewer. An LSTM after a GRU
    computes its cell state c from h. `auto` copies a state of equal shape, `linear` always maps it, `zero` starts from
    zeros, so that the decoder sees the encoder through attention only.

    >>> bridge = Bridge(("h", "c"), (4, 4), 2, ("h",), (6,), 1, directions=2)
    >>> [tuple(s.shape) for s in bridge((torch.zeros(3, 2, 6),))]
    [(3, 2, 4), (3, 2, 4)]
    """

    def __init__(
        self,
        names: Sequence[str],
        sizes: Sequence[int],
        layers: int,
        encoder_names: Sequence[str],
        encoder_sizes: Sequence[int],
        encoder_layers: int,
        *,
        directions: int,
        kind: BridgeKind = "auto",
    ) -> None:
        super().__init__()
        self.names, self.sizes, self.layers = tuple(names), tuple(sizes), layers
        self.encoder_layers, self.directions, self.kind = encoder_layers, directions, kind
        self._origins = [encoder_names.index(name) if name in encoder_names else 0 for name in names]
        self.maps = nn.ModuleDict()
        if kind == "zero":
            return
        for name, size, origin in zip(names, sizes, self._origins, strict=True):
            width = encoder_sizes[origin] * directions
            same = width == size and name in encoder_names and kind == "auto"
            for layer in range(0 if same else layers):
                self.maps[f"{name}{layer}"] = nn.Linear(width, size)

    def forward(self, state: State) -> State:
        """(B, encoder's L·directions, H) each → (B, L, size) each."""
        if self.kind == "zero":
            like = state[0]
            return tuple(like.new_zeros(len(like), self.layers, size) for size in self.sizes)
        return tuple(self._made(name, state[o]) for name, o in zip(self.names, self._origins, strict=True))

    def _made(self, name: str, state: Tensor) -> Tensor:
        by_layer = state.reshape(len(state), self.encoder_layers, -1)  # (B, L, directions·H)
        made = []
        for layer in range(self.layers):
            given = by_layer[:, min(layer, self.encoder_layers - 1)]
            if f"{name}{layer}" in self.maps:
                given = self.maps[f"{name}{layer}"](given)
                given = torch.tanh(given) if name == "h" else given
            made.append(given)
        return torch.stack(made, dim=1)
