"""Fast dropout on a CPU: masks from sixteen random bits per number, where torch samples a double."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

LEVELS = 1 << 16


def keep_mask(p: float, like: Tensor, *shape: int) -> Tensor:
    """Zeros with probability p, and 1 / (1 - p) otherwise, in the dtype and on the device of `like`.

    On a CPU p is rounded to one of 65,536 levels, and the other value is adjusted so that the mean is one. Under
    torch.compile, which has random numbers of its own, the same seed gives other masks.

    >>> mask = keep_mask(0.25, torch.zeros(()), 1000, 8)
    >>> sorted(set(mask.flatten().tolist()))
    [0.0, 1.3333333730697632]
    """
    if like.device.type != "cpu" or torch.compiler.is_compiling():
        return torch.empty(shape, dtype=like.dtype, device=like.device).bernoulli_(1 - p).div_(1 - p)
    dropped = min(max(round(p * LEVELS), 1 if p > 0 else 0), LEVELS - 1 if p < 1 else LEVELS)
    if dropped == LEVELS:
        return torch.zeros(shape, dtype=like.dtype)
    count = math.prod(shape)
    drawn = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None)  # all 64 bits
    kept = drawn.view(torch.int16)[:count] >= dropped - LEVELS // 2
    return kept.view(shape).to(like.dtype).mul_(LEVELS / (LEVELS - dropped))


class Dropout(nn.Dropout):
    """`torch.nn.Dropout`, faster on a CPU, with other masks for the same seed.

    >>> layer = Dropout(0.5)
    >>> bool((layer(torch.ones(1000)) == 0).any()), bool((layer.eval()(torch.ones(1000)) == 0).any())
    (True, False)
    """

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or self.p == 0 or self.inplace or input.device.type != "cpu":
            return super().forward(input)
        return input * keep_mask(self.p, input, *input.shape)
