"""Layers before the recurrence: dense ones for vectors, convolutions for small images (S12)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class DenseFront(nn.Module):
    """Feed-forward layers on each step alone: (B, T, D) → (B, T, sizes[-1]); no sizes: the input as it is."""

    def __init__(self, input_size: int, sizes: Sequence[int], dropout: float = 0.0) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in zip([input_size, *sizes], sizes, strict=False):
            layers += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(dropout)]
        self.layers = nn.Sequential(*layers)
        self.output_size = sizes[-1] if sizes else input_size

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layers(x)
        return result


class ImageFront(nn.Module):
    """A small convolutional network on each image of a sequence: (B, T, C, H, W) → (B, T, output_size).

    Each block is a 3×3 convolution, ReLU and 2×2 maximum, while the image is larger than 4×4; then one dense layer.
    """

    def __init__(self, channels: int, height: int, width: int, output_size: int, base: int = 16) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        before, maps = channels, base
        while min(height, width) > 4 and len(blocks) < 12:
            blocks += [nn.Conv2d(before, maps, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
            before, maps, height, width = maps, min(maps * 2, 128), height // 2, width // 2
        self.convolutions = nn.Sequential(*blocks)
        self.dense = nn.Linear(before * height * width, output_size)
        self.output_size = output_size

    def forward(self, x: Tensor) -> Tensor:
        rows, steps = x.shape[:2]
        maps = self.convolutions(x.flatten(0, 1))  # (B·T, M, h, w)
        return torch.relu(self.dense(maps.flatten(1))).view(rows, steps, -1)
