"""The augmentation of lines in C++, a batch at a time and without Python's lock: pixels and random numbers are those of
`data.signals.augment`.

Without the native engine it is that function itself, which uses Pillow.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unrolled.data.batching.seeds import ExampleSeeds
from unrolled.data.batching.tables import FrameSequences
from unrolled.data.signals.augment import Grey, LineChanges, changed_line
from unrolled.kernels.native_module import NATIVE

Table = NDArray[np.float32]


def changed_lines(
    lines: Sequence[Grey], changes: LineChanges, seeds: ExampleSeeds, numbers: Sequence[int], scale: np.float32
) -> tuple[Table, NDArray[np.int64]]:
    """Lines (W, H) with light ink, changed as by other hands on other paper, and the lengths of the changed ones.

    They are side by side, (B, T, H), greys divided by `scale`. The random numbers of a line are those of its number.
    """
    if NATIVE is None:
        changed = [
            changed_line(line, changes, seeds.generator(number)) for line, number in zip(lines, numbers, strict=True)
        ]
        batch = FrameSequences(changed, changed[0].shape[1:]).batch()
        return np.divide(batch.inputs, scale, out=batch.inputs), batch.lengths
    c, lengths = changes, np.empty(len(lines), dtype=np.int64)
    strengths = (c.warp, c.slant, c.width, c.thickness, c.blur, c.noise)
    return NATIVE.change_lines(lines, seeds.states(numbers), lengths, *strengths, float(scale)), lengths
