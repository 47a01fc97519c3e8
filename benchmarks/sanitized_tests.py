"""Runs the native engine's tests on an extension from a build folder: see sanitize.sh."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch  # noqa: F401  # loads the OpenMP runtime that the extension looks for

(built,) = Path(sys.argv[1]).glob("_native*.so")
spec = importlib.util.spec_from_file_location("unrolled.kernels._native", built)
assert spec is not None
assert spec.loader is not None
module = importlib.util.module_from_spec(spec)
sys.modules["unrolled.kernels._native"] = module
spec.loader.exec_module(module)

# what starts processes of its own, or torch's compiler, would not run the sanitised extension, or not in time
skipped = "not compile and not checks and not without and not instruction and not forked and not auto"
tests = [
    "tests/kernels/test_native.py",
    "tests/kernels/test_attention.py",
    "tests/nn/test_stepper.py",
    "tests/nn/test_ctc.py",
    "tests/search/frames",
    "tests/search/ngram",
]
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", skipped, *tests]))
