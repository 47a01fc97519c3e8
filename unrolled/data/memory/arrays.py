"""Arrays of NumPy, and tensors of torch as such arrays; torch is not imported."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrolled.errors import UserError


def is_array(one: Any) -> bool:
    """True for an array of NumPy and a tensor of torch."""
    return isinstance(one, np.ndarray) or (hasattr(one, "detach") and hasattr(one, "numpy") and hasattr(one, "ndim"))


def as_array(one: Any, what: str) -> NDArray[Any]:
    """The array, or a tensor's values; those of another device are copied."""
    if isinstance(one, np.ndarray):
        return one
    try:
        found: NDArray[Any] = one.detach().cpu().numpy()
    except (TypeError, RuntimeError, NotImplementedError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise UserError(
            f"{what} is a tensor that NumPy cannot read: {reason}.", "Give a dense tensor of numbers: .float().cpu()"
        ) from None
    return found
