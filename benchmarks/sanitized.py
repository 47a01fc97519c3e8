"""Replace the installed extension by one from a build folder: see sanitize.sh."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import torch  # noqa: F401  # loads the OpenMP runtime that the extension looks for


def use_extension(build: str) -> None:
    (built,) = Path(build).glob("_native*.so")
    spec = importlib.util.spec_from_file_location("unrolled.kernels._native", built)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["unrolled.kernels._native"] = module
    spec.loader.exec_module(module)
