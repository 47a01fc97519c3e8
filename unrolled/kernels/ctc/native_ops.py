"""The CTC loss of the native engine as torch operators, and its alignment. Everything is float32 on the CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import unrolled.kernels._native as _native
from unrolled.errors import UserError


def _losses(
    log_probs: Tensor,
    targets: Tensor,
    offsets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int,
    save: bool,
) -> tuple[Tensor, Tensor]:
    """−log p of each target (B,), and the gradients (B, T, V), or nothing.

    `targets` are all labels one after the other, int64; row b's are `target_lengths[b]` from `offsets[b]` on.
    """
    if log_probs.stride(-1) != 1:
        log_probs = log_probs.contiguous()
    batch, steps, labels = log_probs.shape
    losses = log_probs.new_empty(batch)
    gradient = log_probs.new_empty(log_probs.shape if save else 0)
    _native.ctc_loss(
        log_probs.data_ptr(), batch, steps, labels, log_probs.stride(0), log_probs.stride(1), blank, targets.data_ptr(),
        offsets.data_ptr(), target_lengths.data_ptr(), input_lengths.data_ptr(), losses.data_ptr(),
        gradient.data_ptr() if save else 0, torch.get_num_threads(),
    )  # fmt: skip
    return losses, gradient


ctc = torch.library.custom_op(
    "unrolled::ctc",
    _losses,
    mutates_args=(),
    schema="(Tensor log_probs, Tensor targets, Tensor offsets, Tensor input_lengths, Tensor target_lengths, int blank,"
    " bool save) -> (Tensor, Tensor)",
)
ctc_backward = torch.library.custom_op(
    "unrolled::ctc_backward",
    lambda gradient, d_losses, log_probs: gradient * d_losses[:, None, None],
    mutates_args=(),
    # log_probs only stand for what the gradient depends on: its own derivative is asked for, and refused
    schema="(Tensor gradient, Tensor d_losses, Tensor log_probs) -> Tensor",
)


@ctc.register_fake
def _(log_probs: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    save = rest[-1]
    return log_probs.new_empty(log_probs.shape[0]), log_probs.new_empty(log_probs.shape if save else 0)


@ctc_backward.register_fake
def _(gradient: Tensor, d_losses: Tensor, log_probs: Tensor) -> Tensor:
    return torch.empty_like(gradient)


def _set_up(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[1], inputs[0])


def _pull_back(ctx: Any, d_losses: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    gradient, log_probs = ctx.saved_tensors
    found = None if d_losses is None else ctc_backward(gradient, d_losses, log_probs)
    return found, None, None, None, None, None, None


def _refuse_double_backward(ctx: Any, *gradients: object) -> None:
    raise UserError(
        "The native CTC loss has no second derivative.",
        "Use backend='reference', which has derivatives of any order.",
    )


ctc.register_autograd(_pull_back, setup_context=_set_up)
ctc_backward.register_autograd(_refuse_double_backward)


def ctc_align(log_probs: Tensor, target: Tensor, blank: int) -> tuple[float, Tensor]:
    """The likeliest path's log-probability, and its state at each frame (T,): 2j + 1 is label j, 2j a blank."""
    log_probs = log_probs.contiguous()
    steps, labels = log_probs.shape
    path = torch.empty(steps, dtype=torch.int32)
    score: float = _native.ctc_align(
        log_probs.data_ptr(), steps, labels, labels, blank, target.data_ptr(), len(target), path.data_ptr()
    )
    return score, path
