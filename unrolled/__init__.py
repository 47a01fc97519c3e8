"""Sequence models you can see through.

`train` and `load` return a `Model`; `RNN`, `LSTM` and `GRU` replace those of `torch.nn`; `Cell` and `Recurrent` are for
cells of your own. Names load at first use, so `import unrolled` and `unrolled --help` do not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unrolled import cells, kernels, nn
    from unrolled.api import export_onnx, load, resume, run, train
    from unrolled.cells import Cell, Step, Trace
    from unrolled.errors import UserError
    from unrolled.model import Model
    from unrolled.nn import GRU, LSTM, RNN, Recurrent
    from unrolled.training.watching import Callback

__version__ = "0.1.0"
__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "Callback",
    "Cell",
    "Model",
    "Recurrent",
    "Step",
    "Trace",
    "UserError",
    "cells",
    "export_onnx",
    "kernels",
    "load",
    "nn",
    "resume",
    "run",
    "train",
]

_HOMES = {
    "Callback": "unrolled.training.watching",
    "Cell": "unrolled.cells",
    "Model": "unrolled.model",
    "export_onnx": "unrolled.api",
    "load": "unrolled.api",
    "resume": "unrolled.api",
    "run": "unrolled.api",
    "train": "unrolled.api",
    "Step": "unrolled.cells",
    "Trace": "unrolled.cells",
    "UserError": "unrolled.errors",
    "GRU": "unrolled.nn",
    "LSTM": "unrolled.nn",
    "RNN": "unrolled.nn",
    "Recurrent": "unrolled.nn",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in {"cells", "kernels", "nn"}:
        return importlib.import_module(f"unrolled.{name}")
    raise AttributeError(f"module 'unrolled' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
