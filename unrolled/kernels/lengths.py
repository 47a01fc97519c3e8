"""Checks of sequence lengths, which kernels trust."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from unrolled.errors import UserError
from unrolled.kernels.unattended import is_unattended

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def check_lengths(lengths: Tensor | Iterable[int], batch: int, steps: int, device: torch.device) -> Tensor:
    """Check lengths, from 0 to T for each sequence, and move them to the input's device."""
    if not isinstance(lengths, Tensor):
        lengths = torch.tensor(list(lengths))
    if lengths.dtype not in _INTEGERS:
        raise UserError(f"lengths are {lengths.dtype}.", "Expected whole numbers (torch.int64).")
    if tuple(lengths.shape) != (batch,):
        raise UserError(f"lengths have shape {tuple(lengths.shape)}.", f"Expected ({batch},): one for each sequence.")
    if not _unread(lengths):  # reading values would split a compiled graph, and a CUDA graph cannot record it
        for wrong, problem in (
            (lengths < 0, "is negative"),
            (lengths > steps, f"is longer than the input's {steps} steps"),
        ):
            if wrong.any():
                at = int(wrong.int().argmax())
                raise UserError(f"lengths[{at}]={int(lengths[at])} {problem}.", f"Expected 0 to {steps}.")
    return lengths.to(device=device, dtype=torch.int64)


def _unread(lengths: Tensor) -> bool:
    """True if values cannot be read, or nobody waits for them."""
    if torch.compiler.is_compiling():
        return True
    return lengths.is_cuda and (is_unattended() or torch.cuda.is_current_stream_capturing())


def real_steps(lengths: Tensor, steps: int) -> Tensor:
    """(B, T), True at steps before each length.

    >>> real_steps(torch.tensor([2, 0]), 2)
    tensor([[ True,  True],
            [False, False]])
    """
    return torch.arange(steps, device=lengths.device) < lengths[:, None]
