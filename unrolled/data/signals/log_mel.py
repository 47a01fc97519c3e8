"""Log-mel spectrograms of recordings, 100 frames a second."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

FLOOR = 1.1920929e-07  # the smallest energy, as Kaldi's
LOWEST = 20.0  # Hz
AT_ONCE = 4096  # frames


@dataclass(frozen=True)
class LogMel:
    """ln of the energy in `bands` bands of the mel scale, 100 times a second.

        mel(f) = 1127 ln(1 + f / 700)

    A frame is 25 ms under a Hann window; frame t begins at sample t · hop and depends on no sample after its window.
    `deltas` adds the slope of every band over time (1), and the slope of the slopes (2).

    >>> LogMel(8000, bands=4)(np.zeros(8000, dtype=np.float32)).shape
    (98, 4)
    """

    rate: int
    bands: int = 80
    deltas: int = 0

    @property
    def window(self) -> int:
        return self.rate // 40

    @property
    def hop(self) -> int:
        return self.rate // 100

    @property
    def size(self) -> int:
        """Numbers in a frame."""
        return self.bands * (1 + self.deltas)

    def frames(self, samples: int) -> int:
        """The number of frames of a number of samples, at least one."""
        return 1 + max(0, samples - self.window) // self.hop

    def __call__(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Samples (N,) → (T, size). Fewer samples than a window are padded with zeros."""
        import torch

        if len(samples) < self.window:
            samples = np.pad(samples, (0, self.window - len(samples)))
        signal = torch.from_numpy(samples)
        count = self.frames(len(signal))
        parts = []
        for first in range(0, count, AT_ONCE):  # in parts: the spectrum is far larger than the bands
            last = min(first + AT_ONCE, count) - 1
            parts.append(self._logs(signal[first * self.hop : last * self.hop + self.window]))
        frames: NDArray[np.float32] = with_deltas(
            (parts[0] if len(parts) == 1 else torch.cat(parts)).numpy(), self.deltas
        )
        return frames

    def _logs(self, signal: Tensor) -> Tensor:
        import torch
        import torch.nn.functional as F

        points = 1 << (self.window - 1).bit_length()
        window = hann_window(self.window, points)
        signal = F.pad(signal, (0, points - self.window))
        spectrum = torch.stft(signal, points, self.hop, window=window, center=False, return_complex=True)
        energies = mel_filters(self.rate, points, self.bands) @ spectrum.abs().square()  # (bands, T)
        return energies.clamp(min=FLOOR).log().T  # (T, bands)


@functools.lru_cache(maxsize=8)
def hann_window(window: int, points: int) -> Tensor:
    """A Hann window at the start of each frame's points; torch.stft would centre it."""
    import torch
    import torch.nn.functional as F

    return F.pad(torch.hann_window(window), (0, points - window))


@functools.lru_cache(maxsize=8)
def mel_filters(rate: int, points: int, bands: int) -> Tensor:
    """Triangles on the mel scale, evenly spaced from 20 Hz to half the rate: (bands, points / 2 + 1)."""

    import torch

    def mel(hertz: Tensor) -> Tensor:
        return 1127 * torch.log1p(hertz / 700)

    bins = mel(torch.arange(points // 2 + 1, dtype=torch.float64) * rate / points)
    edges = mel(torch.tensor([LOWEST, rate / 2], dtype=torch.float64))
    corners = torch.linspace(float(edges[0]), float(edges[1]), bands + 2, dtype=torch.float64)
    rise = (bins - corners[:-2, None]) / (corners[1:-1] - corners[:-2])[:, None]
    fall = (corners[2:, None] - bins) / (corners[2:] - corners[1:-1])[:, None]
    filters = torch.minimum(rise, fall).clamp(min=0)
    filters[:, -1] = 0  # Kaldi omits the highest frequency
    return filters.float()


def with_deltas(frames: Any, order: int) -> Any:
    """Frames (T, D), an array or a tensor, beside their slopes, (T, D · (1 + order)).

        Δ_t = Σ_{n=1,2} n (x_{t+n} − x_{t−n}) / 10,  the first and last frame repeated beyond the ends

    >>> with_deltas(np.arange(6, dtype=np.float32)[:, None], 1)[:, 1]
    array([0.5, 0.8, 1. , 1. , 0.8, 0.5], dtype=float32)
    """
    if not order:
        return frames
    together = _joined(frames)
    parts, steps = [frames], frames.shape[0]
    for _ in range(order):
        first, last = parts[-1][:1], parts[-1][-1:]
        padded = together([first, first, parts[-1], last, last], 0)
        slope = (padded[3 : 3 + steps] - padded[1 : 1 + steps]) + 2 * (padded[4 : 4 + steps] - padded[:steps])
        parts.append(slope / 10)
    return together(parts, 1)


def _joined(frames: Any) -> Callable[[list[Any], int], Any]:
    """The function that joins arrays, or tensors, along an axis."""
    if isinstance(frames, np.ndarray):
        return lambda parts, axis: np.concatenate(parts, axis)
    import torch

    return torch.cat
