"""The CTC loss of the native engine as a torch operator. Everything is float32 on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

import unrolled.kernels._native as _native
from unrolled.kernels.ctc import reference
from unrolled.kernels.ctc.reference import CTCJob
from unrolled.kernels.native_buffers import Allocate, empty, set_addresses
from unrolled.kernels.native_operator import Kernel, NativeOperator


class CTCResults(NamedTuple):
    """−log p of each target (B,), and its gradient (B, T, V)."""

    losses: Tensor
    saved: Tensor


def _forward(inputs: CTCJob, allocate: Allocate | None) -> CTCResults:
    log_probs = inputs.log_probs if inputs.log_probs.stride(-1) == 1 else inputs.log_probs.contiguous()
    job, alive = _native.CtcJob(), list[Tensor]()
    job.batch, job.steps, job.labels = log_probs.shape
    job.batch_stride, job.step_stride, _ = log_probs.stride()
    job.log_probs, job.blank = log_probs.data_ptr(), inputs.blank
    set_addresses(job, inputs, ("targets", "offsets", "input_lengths", "target_lengths"), alive)
    losses, gradient = empty(job.batch), empty(0)
    job.losses = losses.data_ptr()
    if allocate is not None:
        gradient = allocate(log_probs.numel()).view(log_probs.shape)
        job.gradient = gradient.data_ptr()
    job.run(torch.get_num_threads())
    return CTCResults(losses, gradient)


def _backward(inputs: CTCJob, kept: CTCResults, d: CTCResults, needed: Sequence[bool]) -> dict[str, Tensor]:
    return {} if d.losses is None else {"log_probs": kept.saved * d.losses[:, None, None]}


def _fake(inputs: CTCJob, save: bool) -> CTCResults:
    like = inputs.log_probs
    return CTCResults(like.new_empty(like.shape[0]), like.new_empty(like.shape if save else 0))


ctc = NativeOperator(
    Kernel(
        "ctc",
        "The native CTC loss",
        CTCJob,
        CTCResults,
        differentiable="log_probs",
        forward=_forward,
        backward=_backward,
        fake=_fake,
        fake_gradient=lambda inputs, name: inputs.log_probs.new_empty(inputs.log_probs.shape),
        reference=lambda inputs: (reference.losses(inputs).float(),),
        check=reference.check_values,
    )
)
