"""Exported models without torch: `load(folder)` runs what `unrolled export` wrote, with NumPy and onnxruntime."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unrolled.runtime.model import RuntimeModel, load

__all__ = ["RuntimeModel", "load"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("unrolled.runtime.model"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
