"""Tolerances between two computations of the same numbers: one table, by dtype."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# |actual - expected| ≤ tolerance · max(1, largest |expected|), for every element: rounding grows with the largest
# number in a sum, not with its result. The largest differences measured in tests/conformance on an x86-64 CPU, in this
# measure: float32 2.0e-6 (100 steps, 3 layers, gradients), float64 4.4e-15.
TOLERANCES: dict[torch.dtype, float] = {torch.float32: 1e-5, torch.float64: 1e-12}

# ‖actual - expected‖ / ‖expected‖ of a tensor computed with 16-bit operands and 32-bit sums and states. The largest
# measured, on the simulated GPU of tests/kernels over five steps: float16 5.8e-4, bfloat16 5.2e-3.
RELATIVE: dict[torch.dtype, float] = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def assert_close(actual: Tensor, expected: Tensor | NDArray[np.generic], what: str = "") -> None:
    """Asserts equal shapes, equal dtypes and values within the dtype's tolerance; a NaN is never close.

    `what` names the values in the message of a failure.
    """
    if not isinstance(expected, Tensor):
        expected = torch.from_numpy(np.ascontiguousarray(expected))
    largest = float(expected.detach().abs().max()) if expected.numel() else 0.0
    atol = TOLERANCES[actual.dtype] * max(1.0, largest)

    def named(message: str) -> str:
        return f"{what}: {message}" if what else message

    torch.testing.assert_close(actual.detach(), expected.detach(), rtol=0.0, atol=atol, msg=named)
