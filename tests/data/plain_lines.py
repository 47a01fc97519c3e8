"""Augmentation of lines of text with Pillow: the tests compare the package's own with it, bit for bit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from unrolled.data.signals.augment import LineChanges

Grey = NDArray[np.uint8]


def changed_line(columns: Grey, changes: LineChanges, random: np.random.Generator) -> Grey:
    """A line (W, H) with light ink, changed as by another hand on another paper."""

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
