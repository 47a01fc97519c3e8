"""Exported models without torch: `load(folder)` runs what `unrolled export` wrote, with NumPy and onnxruntime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unrolled.lazy import lazy_names

if TYPE_CHECKING:
    from unrolled.runtime.model import RuntimeModel, load

__all__ = ["RuntimeModel", "load"]

__getattr__ = lazy_names(
    __name__,
    {
        "unrolled.runtime.model": "RuntimeModel load",
    },
)
