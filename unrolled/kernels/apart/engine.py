"""The engine that keeps the rows of answers apart on a device."""

from __future__ import annotations

import torch

from unrolled.cells.apart import RowEngine
from unrolled.kernels import ENGINES


def row_engine_of(device: torch.device) -> RowEngine | None:
    """The engine on a device; None on a GPU, and where the native engine is not built."""
    if device.type != "cpu" or "native" not in ENGINES:
        return None
    from unrolled.kernels.apart.native_ops import NATIVE_ROWS

    return NATIVE_ROWS
