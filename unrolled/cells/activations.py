"""Activations by name; any function from tensor to tensor can be used as well."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from unrolled.errors import UserError, unknown_name

Activation = Callable[[Tensor], Tensor]


def identity(x: Tensor) -> Tensor:
    """x, for a linear recurrence."""
    return x


ACTIVATIONS: dict[str, Activation] = {
    "elu": F.elu,
    "gelu": F.gelu,
    "hardsigmoid": F.hardsigmoid,  # clamp(x / 6 + 1/2, 0, 1), as in torch and Keras 3
    "hardtanh": F.hardtanh,
    "identity": identity,
    "leaky_relu": F.leaky_relu,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "tanh": torch.tanh,
}


def activation(value: str | Activation, kind: str = "activation") -> Activation:
    """The function for a name from `ACTIVATIONS`, or the function itself; `kind` is what an error calls it.

    >>> activation("tanh") is torch.tanh
    True
    """
    if isinstance(value, str):
        if value not in ACTIVATIONS:
            raise unknown_name(kind, value, ACTIVATIONS)
        return ACTIVATIONS[value]
    if not callable(value):
        raise UserError(
            f"An activation must be a name or a function of one tensor, got {type(value).__name__}.",
            f"Names: {', '.join(sorted(ACTIVATIONS))}.",
        )
    return value
