"""The augmentation of lines in C++, without Python's lock: pixels and random numbers are those of
`data.signals.augment`.

Without the native engine it is that function itself, which uses Pillow.
"""

from __future__ import annotations

import numpy as np

from unrolled.data.signals import augment
from unrolled.data.signals.augment import Grey, LineChanges
from unrolled.kernels.native_module import NATIVE

STRIP = 3  # heights in the length of a strip, about


def changed_line(columns: Grey, changes: LineChanges, random: np.random.Generator) -> Grey:
    """A line (W, H) with light ink, changed as by another hand on another paper."""
    change = augment.changed_line if NATIVE is None else _by_engine
    return change(columns, changes, random)


def _by_engine(columns: Grey, changes: LineChanges, random: np.random.Generator) -> Grey:
    (wide, high), draw = columns.shape, random.random
    width = max(1, round(wide * (1 + _between(-changes.width, changes.width, draw()))))
    strips = max(1, round(width / (STRIP * high)))
    lean = _between(-changes.slant, changes.slant, draw()) * high / 2
    moves = draw(4 * (strips + 1))
    other, thicker, blur = 0.0, False, 0.0
    if draw() < changes.thickness:
        thicker = draw() < 0.5
        other = _between(0.1, 0.7 if thicker else 0.5, draw())
    if draw() < changes.blur:
        blur = _between(0.3, 1.2, draw())
    changed = np.empty((width, high), dtype=np.uint8)
    NATIVE.change_line(np.ascontiguousarray(columns), changed, moves, lean, changes.warp, other, thicker, blur)
    if draw() < changes.noise:
        grain = random.standard_normal((high, width), dtype=np.float32)
        ink = np.ascontiguousarray(changed.T) * np.float32(_between(0.6, 1.0, draw()))  # (H, W)
        grain *= np.float32(_between(0, 20, draw()))
        ink += grain
        return np.ascontiguousarray(np.rint(ink.clip(0, 255, out=ink), out=ink).astype(np.uint8).T)
    return changed


def _between(low: float, high: float, share: float) -> float:
    """As NumPy's `uniform` computes it."""
    return low + (high - low) * share
