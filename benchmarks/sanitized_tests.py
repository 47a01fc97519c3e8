"""Run the native engine's tests on an extension from a build folder: see sanitize.sh."""

from __future__ import annotations

import sys

import pytest
from sanitized import use_extension

use_extension(sys.argv[1])

# tests that start processes or torch's compiler would not use the sanitized extension, or would take too long
skipped = "not compile and not checks and not without and not instruction and not forked and not auto"
tests = [
    "tests/kernels/test_native.py",
    "tests/kernels/test_native_with_torch.py",
    "tests/kernels/test_native_choice.py",
    "tests/kernels/test_attention.py",
    "tests/kernels/test_lines.py",
    "tests/nn/test_stepper.py",
    "tests/nn/test_ctc.py",
    "tests/search/ctc",
    "tests/search/ngram",
]
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", skipped, *tests]))
