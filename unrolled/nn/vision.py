"""A convolutional network from a small picture to a vector for each region."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from unrolled.errors import UserError


class Residual(nn.Module):
    """x + two 3×3 convolutions of x, each after a norm over groups of channels and a ReLU.

    Group norm does not depend on the other pictures of a batch.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(2):
            layers += [nn.GroupNorm(_groups(channels), channels), nn.ReLU()]
            layers += [nn.Conv2d(channels, channels, 3, padding=1, bias=False)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = x + self.layers(x)
        return result


class RegionNet(nn.Module):
    """Stages of residual blocks: (B, C, H, W) → (B, channels[-1], h, w), and `grid` is (h, w).

    Each stage halves the picture while a side is longer than `most` regions; later stages keep its size.

    >>> net = RegionNet(3, 32, 32, [16, 32, 64], most=8)
    >>> net.grid, net(torch.zeros(2, 3, 32, 32)).shape
    ((8, 8), torch.Size([2, 64, 8, 8]))
    """

    def __init__(self, colours: int, height: int, width: int, channels: Sequence[int], most: int) -> None:
        super().__init__()
        if not channels:
            raise UserError("channels=[] makes no network.", "Give one number for each stage, such as [32, 64, 128].")
        layers: list[nn.Module] = []
        before = colours
        for after in channels:
            halve = max(height, width) > most and min(height, width) > 1
            layers += [nn.Conv2d(before, after, 3, stride=2 if halve else 1, padding=1), Residual(after)]
            if halve:
                height, width = -(-height // 2), -(-width // 2)
            before = after
        self.layers = nn.Sequential(*layers, nn.GroupNorm(_groups(before), before), nn.ReLU())
        self.grid, self.output_size = (height, width), before
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        maps: Tensor = self.layers(x)
        return maps


def shifted(pixels: Tensor, most: int) -> Tensor:
    """Pictures (B, H, W, C), each moved by up to `most` pixels in both directions; the border pixels are repeated.

    >>> torch.equal(shifted(torch.ones(2, 4, 4, 3), 2), torch.ones(2, 4, 4, 3))
    True
    """
    rows, height, width = pixels.shape[:3]
    by = torch.randint(-most, most + 1, (2, rows, 1), device=pixels.device)
    y = (torch.arange(height, device=pixels.device) + by[0]).clamp(0, height - 1)  # (B, H)
    x = (torch.arange(width, device=pixels.device) + by[1]).clamp(0, width - 1)
    which = torch.arange(rows, device=pixels.device)[:, None, None]
    return pixels[which, y[:, :, None], x[:, None, :]]


def _groups(channels: int) -> int:
    return next(groups for groups in (8, 4, 2, 1) if channels % groups == 0)
