"""Data augmentation for recordings and lines of text. Changes are random, from a generator that the caller seeds by
(seed, epoch, example)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from unrolled.config import Section, but, only

if TYPE_CHECKING:
    from PIL import Image

Spectrum = NDArray[np.float32]
Grey = NDArray[np.uint8]
QUIET = -16.0  # ln of the smallest energy of noise


class SpectrumChanges(Section):
    """Strength of the augmentation of spectrograms."""

    speed: float = Field(0.15, ge=0, lt=1, description="Largest change of speed.")
    pitch: float = Field(
        0.1, ge=0, lt=1, description="Largest change of the vocal tract's length, which moves the bands."
    )
    level: float = Field(1.0, ge=0, description="Largest change of loudness in nats.")
    tilt: float = Field(1.0, ge=0, description="Largest change of the highest bands in nats, as by a room.")
    noise: float = Field(0.5, ge=0, le=1, description="Probability of steady noise.")
    band_masks: int = Field(2, ge=0, description="SpecAugment: number of masked ranges of bands.")
    band_width: float = Field(
        0.15,
        ge=0,
        le=1,
        json_schema_extra=only(band_masks=but(0)),
        description="Largest width of one, as a share of all bands.",
    )
    time_masks: int = Field(2, ge=0, description="SpecAugment: masked stretches of time per second.")
    time_width: float = Field(
        0.06, ge=0, json_schema_extra=only(time_masks=but(0)), description="Largest length of one in seconds."
    )


class LineChanges(Section):
    """Strength of the augmentation of line images."""

    warp: float = Field(
        0.06, ge=0, lt=0.5, description="Largest shift of points of the line, as a share of its height."
    )
    slant: float = Field(0.15, ge=0, lt=1, description="Largest slant to either side.")
    width: float = Field(0.12, ge=0, lt=1, description="Largest change of width.")
    thickness: float = Field(0.5, ge=0, le=1, description="Probability of thinner or thicker strokes.")
    blur: float = Field(0.3, ge=0, le=1, description="Probability of a blur.")
    noise: float = Field(0.3, ge=0, le=1, description="Probability of grain.")


def changed_spectrum(frames: Spectrum, changes: SpectrumChanges, random: np.random.Generator) -> Spectrum:
    """A log-mel spectrogram (T, D), without deltas, changed as by another voice in another room."""
    steps, bands = frames.shape
    speed = 1 + random.uniform(-changes.speed, changes.speed)
    frames = _stretched(frames, np.arange(max(1, round(steps / speed))) * np.float64(speed))
    factor = 1 + random.uniform(-changes.pitch, changes.pitch)
    frames = _stretched(frames.T, np.arange(bands) * np.float64(factor)).T
    tilt = random.uniform(-changes.tilt, changes.tilt) * np.linspace(-1, 1, bands)
    louder: NDArray[np.float64] = frames + random.uniform(-changes.level, changes.level) + tilt
    if random.random() < changes.noise:
        loudest = float(np.quantile(louder, 0.95))
        level = max(QUIET, loudest - random.uniform(3, 14))
        slope = random.uniform(-2, 2) * np.linspace(-1, 1, bands)
        louder = np.logaddexp(louder, level + slope + 0.5 * random.standard_normal(louder.shape))
    return np.ascontiguousarray(louder, dtype=np.float32)


def masked_spectrum(frames: Spectrum, bands: int, changes: SpectrumChanges, random: np.random.Generator) -> Spectrum:
    """SpecAugment (Park et al. 2019) on frames (T, D · bands): masked values become the mean of the recording."""
    steps = len(frames)
    mean, frames = frames.mean(axis=0), frames.copy()
    for _ in range(changes.band_masks):
        width = int(random.integers(0, int(changes.band_width * bands) + 1))
        first = random.integers(0, bands - width + 1)
        band = np.arange(frames.shape[1]) % bands
        chosen = (band >= first) & (band < first + width)
        frames[:, chosen] = mean[chosen]
    for _ in range(round(changes.time_masks * steps / 100)):
        width = min(steps, int(random.integers(0, int(changes.time_width * 100) + 1)))
        first = random.integers(0, steps - width + 1)
        frames[first : first + width] = mean
    return frames


def _stretched(values: Spectrum, places: NDArray[np.float64]) -> Spectrum:
    """Rows interpolated at fractional positions; the last row is repeated beyond the end."""
    places = places.clip(0, len(values) - 1)
    below = places.astype(int)
    above = np.minimum(below + 1, len(values) - 1)
    share = (places - below)[:, None].astype(np.float32)
    result: Spectrum = values[below] * (1 - share) + values[above] * share
    return result


def changed_line(columns: Grey, changes: LineChanges, random: np.random.Generator) -> Grey:
    """A line (W, H) with light ink, changed as by another hand on another paper."""
    from PIL import Image, ImageFilter

    picture = Image.fromarray(np.ascontiguousarray(columns.T))
    picture = _warped(picture, changes, random)
    if random.random() < changes.thickness:
        thicker = random.random() < 0.5
        other = picture.filter(ImageFilter.MaxFilter(3) if thicker else ImageFilter.MinFilter(3))
        picture = Image.blend(picture, other, random.uniform(0.1, 0.7 if thicker else 0.5))
    if random.random() < changes.blur:
        picture = picture.filter(ImageFilter.GaussianBlur(random.uniform(0.3, 1.2)))
    ink = np.asarray(picture).astype(np.float32)
    if random.random() < changes.noise:
        grain = random.standard_normal(ink.shape, dtype=np.float32)
        ink = ink * np.float32(random.uniform(0.6, 1.0)) + np.float32(random.uniform(0, 20)) * grain
    return np.ascontiguousarray(ink.clip(0, 255).round().astype(np.uint8).T)


def _warped(picture: Image.Image, changes: LineChanges, random: np.random.Generator) -> Image.Image:
    """Warp strips about three times as long as high by moving their shared corners, so that nothing tears."""
    from PIL import Image

    wide, high = picture.size
    width = max(1, round(wide * (1 + random.uniform(-changes.width, changes.width))))
    strips = max(1, round(width / (3 * high)))
    edges = np.linspace(0, width, strips + 1).round().astype(int)
    lean = random.uniform(-changes.slant, changes.slant) * high / 2
    moves = random.uniform(-changes.warp, changes.warp, (2, 2, strips + 1)) * high  # (top or bottom, x or y, edge)
    source = edges * (wide / width)
    top = np.stack([source + lean + moves[0, 0], moves[0, 1]], axis=1)
    bottom = np.stack([source - lean + moves[1, 0], high + moves[1, 1]], axis=1)
    mesh = []
    for i in range(strips):
        corners = (*top[i], *bottom[i], *bottom[i + 1], *top[i + 1])
        mesh.append(((int(edges[i]), 0, int(edges[i + 1]), high), tuple(map(float, corners))))
    return picture.transform((width, high), Image.Transform.MESH, mesh, Image.Resampling.BILINEAR)
