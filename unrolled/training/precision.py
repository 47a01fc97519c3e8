"""The precision of matrix products, and the autocast block that gives it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from unrolled.errors import UserError

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def pick_precision(name: str, device: torch.device, key: str = "train.precision") -> str:
    """The precision of that name; `auto` is bf16 on a GPU that computes it, and fp32 otherwise.

    >>> pick_precision("auto", torch.device("cpu"))
    'fp32'
    """
    has_bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    if name == "auto":
        return "bf16" if has_bf16 else "fp32"
    if name == "bf16" and device.type == "cuda" and not has_bf16:
        raise UserError(
            f"{key}=bf16, but {torch.cuda.get_device_name(device)} does not compute bfloat16.",
            f"Use {key}=fp16, or {key}=fp32.",
        )
    return name


def about_precision(device: torch.device) -> str:
    """The precision that `auto` takes on a device, and the reason, for `unrolled doctor`."""
    taken = pick_precision("auto", device)
    if device.type != "cuda":
        return f"{taken} by default: bf16 is the default on GPUs alone"
    name = torch.cuda.get_device_name(device)
    return f"{taken} by default: {name} {'computes' if taken == 'bf16' else 'does not compute'} bfloat16"


def autocast(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """A block in which matrix products have this precision."""
    return nullcontext() if precision == "fp32" else torch.autocast(device.type, dtype=DTYPES[precision])
