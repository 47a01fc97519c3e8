"""How far two computations of the same numbers may be apart: one table, by dtype."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Tolerance(NamedTuple):
    """|actual - expected| ≤ atol + rtol · |expected|, element by element."""

    rtol: float
    atol: float


TOLERANCES: dict[torch.dtype, Tolerance] = {
    torch.float32: Tolerance(rtol=1e-5, atol=1e-5),
    torch.float64: Tolerance(rtol=1e-10, atol=1e-10),
}


def assert_close(actual: Tensor, expected: Tensor | NDArray[np.generic], what: str = "") -> None:
    """Asserts equal shapes, equal dtypes and values within the dtype's tolerance; a NaN is never close.

    `what` names the values in the message of a failure.
    """
    if not isinstance(expected, Tensor):
        expected = torch.from_numpy(np.ascontiguousarray(expected))
    rtol, atol = TOLERANCES[actual.dtype]

    def named(message: str) -> str:
        return f"{what}: {message}" if what else message

    torch.testing.assert_close(actual.detach(), expected.detach(), rtol=rtol, atol=atol, msg=named)
