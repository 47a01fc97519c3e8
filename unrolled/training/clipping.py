"""Gradient clipping, and gradient norms by layer."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn


class ClippedTensors(NamedTuple):
    """Results of clipping, on the weights' device: the norm of all gradients before it, and of each weight's, (P,)."""

    norm: Tensor
    clipped: Tensor
    norms: Tensor  # `Clipping.by_layer` copies many at once


class Clipped(NamedTuple):
    """The same with numbers that were read."""

    norm: float
    clipped: bool
    norms: Tensor


class Clipping:
    """Clips a network's gradients by norm, then by value, and keeps the norms.

    >>> network = nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 1))
    >>> for parameter, size in zip(network.parameters(), (2.0, 4.0, 4.0, 0.0), strict=True):
    ...     parameter.grad = torch.zeros_like(parameter)
    ...     parameter.grad.view(-1)[0] = size
    >>> clipping = Clipping(network)
    >>> found = clipping(norm=3.0)
    >>> found.norm, found.clipped, network[0].bias.grad
    (6.0, True, tensor([2.0000]))
    >>> clipping.layers, clipping.by_layer([found.norms])
    (['0', '1'], [[4.47213..., 4.0]])
    """

    def __init__(self, network: nn.Module) -> None:
        named = [(layer_of(name), p) for name, p in network.named_parameters() if p.requires_grad]
        self.parameters = [parameter for _, parameter in named]
        self.layers = list(dict.fromkeys(layer for layer, _ in named))
        self._home = torch.tensor([self.layers.index(layer) for layer, _ in named])  # (P,)

    def __call__(self, norm: float | None = None, value: float | None = None) -> Clipped:
        """Scale all gradients to a norm of at most `norm`, then clip each number to ±`value`."""
        found = self.clip(norm, value)
        return Clipped(float(found.norm), bool(found.clipped), found.norms)

    def clip(self, norm: float | None = None, value: float | None = None) -> ClippedTensors:
        """The same without a look at a value: nothing waits for a GPU."""
        having = [parameter for parameter in self.parameters if parameter.grad is not None]
        gradients = [parameter.grad for parameter in having if parameter.grad is not None]
        if not gradients:
            none = torch.zeros(len(self.parameters))
            return ClippedTensors(none.sum(), none.any(), none)
        found = torch._foreach_norm(gradients)
        norms = torch.stack(found)
        total = torch.linalg.vector_norm(norms)  # zeros among them could change the last bit
        if len(having) < len(self.parameters):  # unused weights have no gradient
            unused, rest = gradients[0].new_zeros(()), iter(found)
            norms = torch.stack([unused if parameter.grad is None else next(rest) for parameter in self.parameters])
        clipped = torch.zeros_like(total, dtype=torch.bool) if norm is None else total > norm
        if norm is not None:
            nn.utils.clip_grads_with_norm_(having, norm, total)
        if value is not None:
            clipped = clipped | (torch.stack(torch._foreach_norm(gradients, math.inf)).max() > value)
            nn.utils.clip_grad_value_(having, value)
        return ClippedTensors(total, clipped, norms)

    def by_layer(self, norms: Sequence[Tensor]) -> list[list[float]]:
        """The norm of each of `layers` for several updates."""
        squares = torch.stack(list(norms)).cpu().double().square()  # (updates, P)
        sums = squares.new_zeros(len(squares), len(self.layers)).index_add(1, self._home, squares)
        rows: list[list[float]] = sums.sqrt().tolist()
        return rows


def layer_of(parameter: str) -> str:
    """The layer that a parameter belongs to: a module, a numbered block, or one layer and direction of a recurrent one.

    >>> layer_of("layer.weight_hh_l0_reverse"), layer_of("scores.bias"), layer_of("start")
    ('layer.l0_reverse', 'scores', 'start')
    >>> layer_of("encoder.layers.0.self_attn.in_proj_weight")
    'encoder.layers.0'
    """
    module, _, name = parameter.rpartition(".")
    block = re.match(r"(.*?\.)?\d+(?=\.|$)", module)
    if block:
        return block[0]
    found = re.search(r"_(l\d+(_reverse)?)$", name)
    return ".".join(part for part in (module, found[1] if found else "") if part) or name
