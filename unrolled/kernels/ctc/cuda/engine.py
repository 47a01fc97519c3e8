"""The CTC loss and its alignment on an NVIDIA GPU. Nothing is read back: lengths and targets stay on the GPU.

So they are not checked: a length or a label out of range, and a log-probability that is not a number, make the loss of
their sequence NaN and its gradient 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unrolled.kernels.ctc import reference
from unrolled.kernels.ctc.cuda import plan
from unrolled.kernels.ctc.cuda.arguments import CTCArguments
from unrolled.kernels.ctc.cuda.plan import MAX_LABELS, pairs_of
from unrolled.kernels.ctc.reference import CTCJob
from unrolled.kernels.cuda import compiler, launch
from unrolled.kernels.native_buffers import Allocate
from unrolled.kernels.native_operator import Kernel, NativeOperator

DEVICE = "cuda"


class CTCBatch(NamedTuple):
    """A batch of sequences and targets, all on one GPU."""

    log_probs: Tensor  # (B, T, V) float32
    targets: Tensor  # (B, L) with any padding, or with offsets all labels concatenated (ΣL,); int64
    offsets: Tensor | None  # (B,) int64, as both lengths
    input_lengths: Tensor
    target_lengths: Tensor
    blank: int
    longest: int  # no target with a path has more labels


class CTCLosses(NamedTuple):
    """−log p of each target (B,), and what the gradient is computed from."""

    losses: Tensor
    saved: Tensor


class _Kept(NamedTuple):
    """The beginnings of the parts of the saved buffer, in words of 8 bytes."""

    states: Tensor  # (B, 2, T, 2, S)
    totals: Tensor  # (B,)
    links: Tensor  # (B, S), two to a word


def refuses(log_probs: Tensor, longest: int) -> str | None:
    """The reason why this engine cannot run, or None."""
    if log_probs.device.type != DEVICE:
        return f"it runs on an NVIDIA GPU, the input is on {log_probs.device}"
    if log_probs.dtype == torch.float64:
        return "it computes in float32, got torch.float64"
    if longest > MAX_LABELS:
        return f"it has up to {MAX_LABELS} labels in a target, got {longest}"
    reason = compiler.missing()
    if reason is not None:
        return reason
    major, minor = torch.cuda.get_device_capability(log_probs.device)
    return None if major >= 8 else f"it needs a GPU of compute capability 8.0 or newer, this one has {major}.{minor}"


def _kept_sizes(job: CTCBatch) -> tuple[int, int, int]:
    batch, steps, _ = job.log_probs.shape
    pairs = pairs_of(job.longest)
    return batch * 4 * steps * pairs, batch, batch * pairs // 2


def _arguments(job: CTCBatch, log_probs: Tensor) -> CTCArguments:
    """The arguments that all kernels read; the tensors must outlive the launch."""
    targets, given = job.targets, CTCArguments()
    given.batch, given.steps, given.labels = log_probs.shape
    given.row_stride, given.step_stride, _ = log_probs.stride()
    given.log_probs, given.targets = log_probs.data_ptr(), targets.data_ptr()
    given.target_stride, given.target_count = targets.stride(0), targets.shape[-1]
    given.offsets = None if job.offsets is None else job.offsets.data_ptr()
    given.input_lengths, given.target_lengths = job.input_lengths.data_ptr(), job.target_lengths.data_ptr()
    given.blank, given.pairs = job.blank, pairs_of(job.longest)
    return given


def _ready(job: CTCBatch) -> tuple[CTCBatch, Tensor]:
    """The job with integers as the kernels read them, and log-probabilities whose labels stand side by side."""
    integers = {
        name: getattr(job, name).contiguous()
        for name in ("targets", "offsets", "input_lengths", "target_lengths")
        if getattr(job, name) is not None
    }
    log_probs = job.log_probs if job.log_probs.stride(-1) == 1 else job.log_probs.contiguous()
    return job._replace(**integers), log_probs


def _forward(job: CTCBatch, allocate: Allocate | None) -> CTCLosses:
    """With an allocator, what the gradient needs is saved, in memory of the GPU."""
    job, log_probs = _ready(job)
    save = allocate is not None
    losses = log_probs.new_empty(len(log_probs))
    saved = log_probs.new_empty(sum(_kept_sizes(job)) if save else 0, dtype=torch.int64)
    given = _arguments(job, log_probs)
    given.losses, given.roles = losses.data_ptr(), plan.ROLES if save else 1
    if save:
        _set_kept(given, job, saved)
    blocks = plan.lattice(len(log_probs), job.longest, save)
    launch.run(plan.program("loss.cu", job.longest), "lattice", blocks, given, log_probs.device)
    return CTCLosses(losses, saved)


def _set_kept(given: CTCArguments, job: CTCBatch, saved: Tensor) -> None:
    states, totals, _ = _kept_sizes(job)
    kept = _Kept(saved, saved[states:], saved[states + totals :])
    given.states, given.totals, given.links = (part.data_ptr() for part in kept)


def _backward(job: CTCBatch, kept: CTCLosses, d: CTCLosses, needed: Sequence[bool]) -> dict[str, Tensor]:
    if d.losses is None:
        return {}
    job, log_probs = _ready(job)
    batch, steps, _ = log_probs.shape
    gradient = log_probs.new_empty(log_probs.shape)
    if gradient.numel() == 0:
        return {"log_probs": gradient}
    given = _arguments(job, log_probs)
    _set_kept(given, job, kept.saved)
    given.losses, given.gradient = kept.losses.data_ptr(), gradient.data_ptr()
    given.d_losses, given.d_losses_stride = d.losses.data_ptr(), d.losses.stride(0)
    blocks = plan.gradient(batch, steps, job.longest)
    launch.run(plan.program("loss.cu", job.longest), "gradient", blocks, given, log_probs.device)
    return {"log_probs": gradient}


def _fake(job: CTCBatch, save: bool) -> CTCLosses:
    like = job.log_probs
    saved = like.new_empty(sum(_kept_sizes(job)) if save else 0, dtype=torch.int64)
    return CTCLosses(like.new_empty(like.shape[0]), saved)  # len() of a tensor would fix its size in a compiled graph


def _fake_gradient(job: CTCBatch, name: str) -> Tensor:
    return job.log_probs.new_empty(job.log_probs.shape)


def _reference(job: CTCBatch) -> tuple[Tensor]:
    """The losses in plain torch, which reads the targets back."""
    targets, offsets = job.targets.cpu(), job.offsets
    if offsets is None:
        offsets = torch.arange(len(targets)) * targets.shape[1]
    lengths = job.input_lengths.cpu(), job.target_lengths.cpu()
    return (reference.losses(CTCJob(job.log_probs, targets.reshape(-1), offsets.cpu(), *lengths, job.blank)).float(),)


ctc: NativeOperator[Any, Any] = NativeOperator(
    Kernel(
        "cuda_ctc",
        "The CTC loss of the cuda engine",
        CTCBatch,
        CTCLosses,
        differentiable="log_probs",
        forward=_forward,
        backward=_backward,
        fake=_fake,
        fake_gradient=_fake_gradient,
        reads=("losses",),
        reference=_reference,
    )
)


def losses(job: CTCBatch) -> Tensor:
    """−log p of each target (B,): infinite without a path, NaN for what the kernels cannot compute."""
    found: Tensor = ctc(job).losses
    return found


def align(job: CTCBatch) -> tuple[Tensor, Tensor]:
    """The log-probability of each best path (B,), in float64, and its states (B, T): 2j + 1 is label j, 2j a blank."""
    job, log_probs = _ready(job)
    batch, steps, _ = log_probs.shape
    scores = log_probs.new_empty(batch, dtype=torch.float64)
    path = log_probs.new_empty(batch, steps, dtype=torch.int32)
    moves = log_probs.new_empty(batch, steps, pairs_of(job.longest), dtype=torch.uint8)
    given = _arguments(job, log_probs)
    given.scores, given.path, given.moves = scores.data_ptr(), path.data_ptr(), moves.data_ptr()
    given.walk_frames = plan.walk_frames(job.longest)
    blocks = plan.align(batch, job.longest)
    launch.run(plan.program("align.cu", job.longest), "align", blocks, given, log_probs.device)
    return scores, path
