"""One vector for a whole sequence."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from unrolled.cells.apart import pointwise, product, softmax
from unrolled.errors import unknown_name
from unrolled.nn.linear import Linear

POOLINGS = ("last", "max", "mean", "attention")


class Pooling(nn.Module):
    """The states of a sequence (B, T, D) → one vector (B, D). Padding never counts; an empty sequence gives zeros.

    last        [h→_T ; h←_1]: the final state of each of the `directions`
    max, mean   of each unit over the real steps
    attention   Σ_t α_t h_t with α = softmax over real steps of vᵀ tanh(W h_t)

    A plus concatenates several: "max+last".

    >>> pool = Pooling("last", size=2, directions=2)
    >>> states = torch.tensor([[[1.0, 5.0], [2.0, 6.0], [0.0, 0.0]]])
    >>> pool(states, torch.tensor([[True, True, False]])).tolist()
    [[2.0, 5.0]]
    """

    def __init__(self, kind: str, size: int, directions: int = 1) -> None:
        super().__init__()
        self.kinds = kind.split("+")
        for one in self.kinds:
            if one not in POOLINGS:
                raise unknown_name("pooling", one, POOLINGS)
        self.size, self.directions, self.output_size = size, directions, size * len(self.kinds)
        if "attention" in self.kinds:
            self.project = Linear(size, size)
            self.query = Linear(size, 1, bias=False)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """states (B, T, D), mask (B, T) → (B, D), or (B, n·D) of n kinds."""
        return torch.cat([self._one(kind, states, mask) for kind in self.kinds], dim=-1)

    def _one(self, kind: str, states: Tensor, mask: Tensor) -> Tensor:
        if kind == "last":
            return self._last(states, mask)
        if kind == "max":
            filled = states.masked_fill(~mask[..., None], -torch.inf).amax(dim=1)
            return torch.where(mask.any(dim=1)[:, None], filled, 0.0)
        weights = self.weights(kind, states, mask)
        return product(weights[:, None], torch.where(mask[..., None], states, 0.0)).squeeze(1)

    def weights(self, kind: str, states: Tensor, mask: Tensor) -> Tensor:
        """The weight of each step (B, T): they sum to one over the real steps; padding has zero."""
        if kind == "mean":
            return mask / mask.sum(dim=1, keepdim=True).clamp(min=1)
        scores = self.query(pointwise(torch.tanh, self.project(states))).squeeze(-1).float()
        scores = scores.masked_fill(~mask, -torch.inf)
        scores = scores.masked_fill(~mask.any(dim=1)[:, None], 0.0)  # an empty sequence must not become NaN
        return torch.where(mask, softmax(scores), 0.0).to(states.dtype)

    def _last(self, states: Tensor, mask: Tensor) -> Tensor:
        lengths = mask.sum(dim=1)
        rows = torch.arange(states.shape[0], device=states.device)
        final = states[rows, (lengths - 1).clamp(min=0)]  # (B, D)
        if self.directions == 2:
            half = self.size // 2
            final = torch.cat([final[:, :half], states[:, 0, half:]], dim=-1)
        return torch.where(lengths[:, None] > 0, final, 0.0)
