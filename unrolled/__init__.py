"""Sequence models you can see through.

`train` and `load` return a `Model`; `RNN`, `LSTM` and `GRU` replace those of `torch.nn`; `Cell` and `Recurrent` are for
cells of your own. Names load at first use, so `import unrolled` and `unrolled --help` do not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unrolled import cells, kernels, nn
    from unrolled.api import export_onnx, load, resume, sweep, train
    from unrolled.cells import Cell, Step, Trace
    from unrolled.corpus.verb import run
    from unrolled.errors import UserError
    from unrolled.model import Model
    from unrolled.nn import GRU, LSTM, RNN, Recurrent
    from unrolled.sweeps import choice, integer, log, uniform
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
    "choice",
    "export_onnx",
    "integer",
    "kernels",
    "load",
    "log",
    "nn",
    "resume",
    "run",
    "sweep",
    "train",
    "uniform",
]

_HOMES = {
    "Callback": "unrolled.training.watching",
    "Cell": "unrolled.cells",
    "Model": "unrolled.model",
    "export_onnx": "unrolled.api",
    "load": "unrolled.api",
    "resume": "unrolled.api",
    "run": "unrolled.corpus.verb",
    "sweep": "unrolled.api",
    "train": "unrolled.api",
    **dict.fromkeys(("choice", "integer", "log", "uniform"), "unrolled.sweeps"),
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
    if name in {"cells", "kernels", "nn", "sklearn"}:
        return importlib.import_module(f"unrolled.{name}")
    raise AttributeError(f"module 'unrolled' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
