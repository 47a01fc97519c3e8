"""Layers before the recurrence: dense for vectors, convolutions for images and spectrograms."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unrolled.cells.apart import each_alone, row_engine
from unrolled.kernels.lengths import real_steps
from unrolled.nn.linear import Linear


class DenseFront(nn.Module):
    """Feed-forward layers on each step: (B, T, D) → (B, T, sizes[-1]); no sizes: the input itself."""

    def __init__(self, input_size: int, sizes: Sequence[int], dropout: float = 0.0) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in zip([input_size, *sizes], sizes, strict=False):
            layers += [Linear(before, after), nn.ReLU(), nn.Dropout(dropout)]
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
        self.dense = Linear(before * height * width, output_size)
        self.output_size = output_size

    def forward(self, x: Tensor) -> Tensor:
        rows, steps = x.shape[:2]
        maps = each_alone(self.convolutions, x.flatten(0, 1))  # (B·T, M, h, w)
        return torch.relu(self.dense(maps.flatten(1))).view(rows, steps, -1)


class ConvolutionFront(nn.Module):
    """Convolutions over time and features together: (B, T, D) → (B, T / time_factor, output_size).

    Each layer is a 3×3 convolution with its own stride over time and stride 2 over features, and ReLU. With `causal` it
    reads a step and the two before it, so that no output depends on later steps. Padding is kept at 0 in every layer,
    so that it has no effect.

    >>> front = ConvolutionFront(48, [16, 32], [2, 2])
    >>> output, lengths = front(torch.zeros(2, 10, 48), torch.tensor([10, 7]))
    >>> output.shape, lengths.tolist()
    (torch.Size([2, 3, 384]), [3, 2])
    """

    def __init__(self, features: int, channels: Sequence[int], strides: Sequence[int], causal: bool = False) -> None:
        super().__init__()
        self.strides, self.causal = tuple(strides), causal
        convolutions = [
            nn.Conv2d(before, after, 3, stride=(stride, 2), padding=(0 if causal else 1, 1))
            for before, after, stride in zip([1, *channels], channels, strides, strict=False)
        ]
        self.convolutions = nn.ModuleList(convolutions)
        for convolution in convolutions:  # keeps the variance of signals (He et al. 2015)
            nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
            assert convolution.bias is not None
            nn.init.zeros_(convolution.bias)
        for _ in channels:
            features = -(-features // 2)
        self.time_factor = math.prod(self.strides)
        self.output_size = features * channels[-1] if channels else features

    @property
    def context(self) -> int:
        """The number of steps before a block that a causal front end reads, a multiple of `time_factor`."""
        needed, step = 0, 1
        for stride in self.strides:
            needed, step = needed + 2 * step, step * stride
        return -(-needed // self.time_factor) * self.time_factor

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs and their lengths, (B,): of T steps ⌈T / time_factor⌉."""
        if row_engine() is not None and len(x) > 1:
            return self._one_by_one(x, lengths)
        maps = x.unsqueeze(1)  # (B, M, T, D)
        for convolution, stride in zip(self.convolutions, self.strides, strict=True):
            maps = torch.relu(convolution(F.pad(maps, (0, 0, 2, 0)) if self.causal else maps))
            lengths = (lengths + stride - 1) // stride
            real = real_steps(lengths, maps.shape[2])
            maps = maps * real[:, None, :, None]
        return maps.transpose(1, 2).flatten(2), lengths

    def _one_by_one(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """`forward`, each sequence by itself and without padding: as if it were alone."""
        if bool((lengths == x.shape[1]).all()):
            return self._of_one_length(x, lengths)
        alone = zip(torch.split(x, 1), torch.split(lengths, 1), strict=True)
        each = [self(one[:, : int(length)], length) for one, length in alone]
        longest = max(output.shape[1] for output, _ in each)
        padded = [F.pad(output, (0, 0, 0, longest - output.shape[1])) for output, _ in each]
        return torch.cat(padded), torch.cat([length for _, length in each])

    def _of_one_length(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The same for sequences without padding: only the convolutions, whose bits depend on the batch, are apart."""
        maps = x.unsqueeze(1)
        for convolution, stride in zip(self.convolutions, self.strides, strict=True):
            maps = F.pad(maps, (0, 0, 2, 0)) if self.causal else maps
            maps = torch.relu(torch.cat([convolution(one) for one in torch.split(maps, 1)]))
            lengths = (lengths + stride - 1) // stride
        return maps.transpose(1, 2).flatten(2), lengths
