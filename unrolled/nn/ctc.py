"""Connectionist temporal classification: the loss, alignments, and targets without a path."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeGuard

import torch
from torch import Tensor

from unrolled.errors import UserError, unknown_name
from unrolled.kernels import ENGINES
from unrolled.kernels.ctc import reference
from unrolled.kernels.ctc.alignment import align, align_native, frames_needed, labels_of, spans_of
from unrolled.kernels.ctc.cuda import engine as cuda
from unrolled.kernels.ctc.reference import CTCJob

REDUCTIONS = ("none", "mean", "sum")
BACKENDS = ("auto", "cuda", "native", "reference")
Lengths = Tensor | Sequence[int] | int


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor | Sequence[Sequence[int]],
    input_lengths: Lengths | None = None,
    target_lengths: Lengths | None = None,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
    backend: str = "auto",
) -> Tensor:
    """−log of the probability of all paths that read as the target (Graves et al. 2006).

    A path has one label or a blank for each frame; it is read by merging repeated labels and then removing blanks. The
    arguments are those of `torch.nn.functional.ctc_loss`, but batch first:

    - `log_probs` (B, T, V), or (T, V) for one sequence: log-probabilities, the result of `log_softmax`.
    - `targets` (B, L) with any padding, or all labels concatenated (ΣL,), or a list of lists.
    - `input_lengths`, `target_lengths` (B,); none: all frames, all labels.
    - `reduction`: "none"; "sum"; or "mean", which divides each loss by its target's length (at least 1) first.
    - `zero_infinity`: a target without a path counts 0; otherwise its loss is infinite. Its gradient is 0 either way.

    The path of an empty target has only blanks. The gradient is the derivative with respect to `log_probs`; torch's has
    softmax(log_probs) added to it. After `log_softmax` the two give the same gradient.

    `backend`: "cuda" (our kernels on an NVIDIA GPU, float32), "native" (C++ on the CPU, float32), "reference" (plain
    torch in float64, derivatives of any order) or "auto". With targets and lengths that are on the GPU, "cuda" reads
    nothing back, so a CUDA graph can capture it, and nothing is checked: a label or a length out of range, or NaN,
    makes the loss of its sequence NaN and its gradient 0.

    >>> log_probs = torch.tensor([[0.4, 0.6], [0.4, 0.6]]).log()  # two frames of blank and "a"
    >>> round(ctc_loss(log_probs, torch.tensor([1])).neg().exp().item(), 4)  # "aa", "a−" and "−a"
    0.84
    """
    if reduction not in REDUCTIONS:
        raise unknown_name("reduction", reduction, REDUCTIONS)
    single = log_probs.dim() == 2
    if single:
        log_probs = log_probs[None]
        targets = targets.reshape(1, -1) if isinstance(targets, Tensor) else [targets]  # type: ignore[list-item]
    _check_frames(log_probs, blank)
    if torch.compiler.is_compiling() and log_probs.is_cuda:
        targets, input_lengths, target_lengths = _on_device(log_probs, targets, input_lengths, target_lengths)
    given = (targets, input_lengths, target_lengths, blank)
    longest = _longest(log_probs, targets, target_lengths) if log_probs.is_cuda else 0
    engine = _choose(backend, log_probs, longest)
    if engine == "cuda":
        batch = _gpu_batch(log_probs, *given)
        losses, lengths = cuda.losses(batch), batch.target_lengths
    else:
        job = _job(log_probs, *given)
        losses, lengths = _native_losses(job) if engine == "native" else reference.losses(job), job.target_lengths
    if zero_infinity:
        losses = torch.where(losses.isinf(), 0.0, losses)
    losses = losses.to(log_probs.dtype)
    if reduction == "mean":
        return (losses / lengths.clamp(min=1).to(losses)).mean()
    if reduction == "sum":
        return losses.sum()
    return losses[0] if single else losses


class Infeasible(NamedTuple):
    """A target with more labels than its frames can hold."""

    sample: int  # its index
    frames: int
    needed: int  # a frame for each label, and one for the blank between equal labels

    def __str__(self) -> str:
        return f"sample {self.sample} has {self.frames} frames, its target needs {self.needed}"


def find_infeasible(targets: Sequence[Sequence[int] | Tensor], input_lengths: Lengths) -> list[Infeasible]:
    """The samples whose targets are too long for their frames, for a report before training.

    >>> found = find_infeasible([[1, 2], [1, 1], [], [3]], [2, 2, 0, 0])
    >>> for one in found:
    ...     print(one)
    sample 1 has 2 frames, its target needs 3
    sample 3 has 0 frames, its target needs 1
    """
    lengths = _as_lengths(input_lengths, len(targets), "input_lengths")
    found = []
    for index, (target, frames) in enumerate(zip(targets, lengths.tolist(), strict=True)):
        labels = target.tolist() if isinstance(target, Tensor) else list(target)
        needed = frames_needed(labels)
        if needed > frames:
            found.append(Infeasible(index, frames, needed))
    return found


@dataclass(frozen=True)
class Alignment:
    """The frames of each label of a target."""

    log_prob: float  # of this one path
    path: list[int]  # (T,): the label, or the blank, of each frame
    spans: list[tuple[int, int]]  # for each label of the target, its first frame and the one after its last


def ctc_align(log_probs: Tensor, target: Tensor | Sequence[int], blank: int = 0, backend: str = "auto") -> Alignment:
    """The most likely path of the target: log_probs (T, V), forced alignment (Viterbi).

    >>> likely = torch.tensor([0, 1, 1, 0, 2])
    >>> ctc_align(torch.eye(3)[likely].mul(5).log_softmax(-1), [1, 2])
    Alignment(log_prob=-0.066..., path=[0, 1, 1, 0, 2], spans=[(1, 3), (4, 5)])
    """
    if log_probs.dim() != 2:
        raise UserError(f"log_probs must be (frames, labels), got shape {tuple(log_probs.shape)}.")
    labels = torch.as_tensor(target, dtype=torch.int64).reshape(-1).cpu()
    frames = log_probs[None].detach()
    _check_frames(frames, blank)
    engine = _choose(backend, frames, min(len(labels), len(log_probs)))
    if engine == "cuda":
        score, path = _gpu_align(frames, labels, blank)
    else:
        score, path = _host_align(engine, _job(frames.cpu(), labels[None], None, None, blank))
    if math.isnan(score):
        raise reference.not_finite(_job(frames.cpu(), labels[None], None, None, blank))
    if score < reference.NEVER / 2:
        raise UserError(
            f"No path of {len(log_probs)} frames reads as the target of {len(labels)} labels.",
            "A target needs a frame for each label, a blank between equal labels, and probabilities above 0.",
        )
    return Alignment(score, labels_of(path, labels.numpy(), blank).tolist(), spans_of(path, len(labels)))


def ctc_occupancy(log_probs: Tensor, target: Tensor | Sequence[int], blank: int = 0) -> Tensor:
    """The probability of each state at each frame, of paths that read as the target: (T, V) → (T, 2L + 1).

    The states are a blank, the first label, a blank, the second, …, a blank. Each row sums to one. It is the
    derivative of log P(target) with respect to the score of a state at a frame.

    >>> ctc_occupancy(torch.tensor([[0.4, 0.6], [0.6, 0.4]]).log(), [1]).round(decimals=2)
    tensor([[0.2100, 0.7900, 0.0000],
            [0.0000, 0.5300, 0.4700]])
    """
    labels = torch.as_tensor(target, dtype=torch.int64).reshape(-1).cpu()
    frames = log_probs[None].detach().cpu()
    _check_frames(frames, blank)
    return reference.occupancy(_job(frames, labels[None], None, None, blank))


def _check_frames(log_probs: Tensor, blank: int) -> None:
    if log_probs.dim() != 3:
        raise UserError(f"log_probs must be (batch, frames, labels), got shape {tuple(log_probs.shape)}.")
    if not log_probs.is_floating_point():
        raise UserError(f"log_probs must be floating-point numbers, got {log_probs.dtype}.")
    batch, _, labels = log_probs.shape
    if batch == 0 or labels == 0:
        raise UserError(
            f"log_probs tensor must not be empty, got shape {tuple(log_probs.shape)}.",
            "Expected (batch, frames, labels); a sequence without frames is a length of 0.",
        )
    if not 0 <= blank < labels:
        raise UserError(f"blank={blank} is not one of the {labels} labels.", f"Use a number from 0 to {labels - 1}.")


def _job(
    log_probs: Tensor,
    targets: Tensor | Sequence[Sequence[int]],
    input_lengths: Lengths | None,
    target_lengths: Lengths | None,
    blank: int,
) -> CTCJob:
    batch, steps, labels = log_probs.shape
    if torch.compiler.is_compiling():
        return CTCJob(log_probs, *_unread(targets, input_lengths, target_lengths, batch, steps), blank)
    inputs = _input_lengths(input_lengths, batch, steps)
    flat, offsets, lengths = _flat_targets(targets, target_lengths, batch)
    job = CTCJob(log_probs, flat, offsets, inputs, lengths, blank)
    reference.check_labels(job, labels)
    return job


def _unread(
    targets: Tensor | Sequence[Sequence[int]],
    input_lengths: Lengths | None,
    target_lengths: Lengths | None,
    batch: int,
    steps: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Labels, offsets and both lengths without a look at their values: the operator checks them when it runs."""
    inputs = torch.full((batch,), steps) if input_lengths is None else _shaped(input_lengths, batch, "input_lengths")
    if not isinstance(targets, Tensor):
        target_lengths = [len(row) for row in targets]
        targets = torch.tensor([label for row in targets for label in row], dtype=torch.int64)
    if targets.is_floating_point():
        raise UserError(f"targets must be whole numbers, got {targets.dtype}.")
    if target_lengths is None and targets.dim() != 2:
        raise UserError("Concatenated targets need target_lengths.", "Give the length of each.")
    if targets.dim() == 2 and len(targets) != batch:
        raise UserError(f"targets of shape {tuple(targets.shape)} do not go with a batch of {batch}.")
    wide = targets.shape[-1]
    lengths = torch.full((batch,), wide) if target_lengths is None else _shaped(target_lengths, batch, "target_lengths")
    offsets = torch.arange(batch) * wide if targets.dim() == 2 else lengths.cumsum(0) - lengths
    return targets.to("cpu", torch.int64).reshape(-1), offsets, inputs, lengths


def _on_device(
    log_probs: Tensor,
    targets: Tensor | Sequence[Sequence[int]],
    input_lengths: Lengths | None,
    target_lengths: Lengths | None,
) -> tuple[Tensor | Sequence[Sequence[int]], Lengths | None, Lengths | None]:
    """Targets and lengths on the GPU, where nothing is read back from them."""
    batch, device = len(log_probs), log_probs.device
    given = {"input_lengths": input_lengths, "target_lengths": target_lengths}
    inputs, lengths = (None if v is None else _shaped(v, batch, name, device) for name, v in given.items())
    return targets.to(device) if isinstance(targets, Tensor) else targets, inputs, lengths


def _shaped(lengths: Lengths, batch: int, name: str, device: torch.device | str = "cpu") -> Tensor:
    """Lengths of which only the shape is checked."""
    found = torch.as_tensor(lengths).reshape(-1)
    if found.is_floating_point():
        raise UserError(f"{name} must be whole numbers from 0 up, got {found.dtype}.")
    if len(found) != batch:
        raise UserError(f"{name} has {len(found)} numbers for a batch of {batch}.")
    return found.to(device, torch.int64)


def _input_lengths(lengths: Lengths | None, batch: int, steps: int) -> Tensor:
    """The number of frames of each sequence (B,), on the CPU."""
    if lengths is None:
        return torch.full((batch,), steps)
    found = _as_lengths(lengths, batch, "input_lengths")
    if int(found.max()) > steps:
        raise UserError(
            f"input_lengths has {found.tolist()}, but there are {steps} frames.", f"Use lengths from 0 to {steps}."
        )
    return found


def _flat_targets(
    targets: Tensor | Sequence[Sequence[int]], target_lengths: Lengths | None, batch: int
) -> tuple[Tensor, Tensor, Tensor]:
    """All labels concatenated, and the offset and length of each target."""
    if not isinstance(targets, Tensor):
        rows = [torch.as_tensor(row, dtype=torch.int64) for row in targets]
        own = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        if target_lengths is None:
            target_lengths = own
        targets = torch.cat([*rows, own.new_empty(0)])
        if len(own) != batch or not torch.equal(own, _as_lengths(target_lengths, batch, "target_lengths")):
            raise UserError(f"The targets have lengths {own.tolist()}, for a batch of {batch}.")
    if targets.is_floating_point():
        raise UserError(f"targets must be whole numbers, got {targets.dtype}.")
    targets = targets.to("cpu", torch.int64)
    if targets.dim() == 2:
        lengths = torch.full((batch,), targets.shape[1])
        if target_lengths is not None:
            lengths = _as_lengths(target_lengths, batch, "target_lengths")
        if len(targets) != batch or (batch and not 0 <= int(lengths.min()) <= int(lengths.max()) <= targets.shape[1]):
            raise UserError(
                f"targets of shape {tuple(targets.shape)} do not go with target_lengths {lengths.tolist()} "
                f"and a batch of {batch}."
            )
        targets = targets[torch.arange(targets.shape[1]) < lengths[:, None]]
    elif target_lengths is None:
        raise UserError("Concatenated targets need target_lengths.", "Give the length of each.")
    else:
        lengths = _as_lengths(target_lengths, batch, "target_lengths")
    if int(lengths.sum()) != len(targets):
        raise UserError(f"target_lengths add up to {int(lengths.sum())}, but there are {len(targets)} labels.")
    return targets.contiguous(), (lengths.cumsum(0) - lengths).contiguous(), lengths.contiguous()


def _as_lengths(lengths: Lengths, batch: int, name: str) -> Tensor:
    found = torch.as_tensor(lengths).reshape(-1)
    if found.is_floating_point() or (len(found) and int(found.min()) < 0):
        raise UserError(f"{name} must be whole numbers from 0 up, got {found.tolist()}.")
    if len(found) != batch:
        raise UserError(f"{name} has {len(found)} numbers for a batch of {batch}.")
    return found.to("cpu", torch.int64).contiguous()


def _on_gpu(value: object) -> TypeGuard[Tensor]:
    return isinstance(value, Tensor) and value.is_cuda


def _longest(log_probs: Tensor, targets: Tensor | Sequence[Sequence[int]], target_lengths: Lengths | None) -> int:
    """At least the number of labels of every target that has a path; nothing is read from a GPU."""
    steps = log_probs.shape[1]
    if not isinstance(targets, Tensor):
        return min(steps, max(map(len, targets), default=0))
    if target_lengths is None or _on_gpu(target_lengths):
        return min(steps, targets.shape[-1] if targets.dim() else 0)
    lengths = torch.as_tensor(target_lengths)
    return min(steps, int(lengths.max()) if lengths.numel() else 0)


def _gpu_batch(
    log_probs: Tensor,
    targets: Tensor | Sequence[Sequence[int]],
    input_lengths: Lengths | None,
    target_lengths: Lengths | None,
    blank: int,
) -> cuda.CTCBatch:
    """The batch on its GPU. Targets and lengths that are there already are not read, so only shapes are checked."""
    batch, steps, labels = log_probs.shape
    device = log_probs.device
    longest = _longest(log_probs, targets, target_lengths)
    inputs = (
        _shaped(input_lengths, batch, "input_lengths", device)
        if _on_gpu(input_lengths)
        else _input_lengths(input_lengths, batch, steps).to(device)
    )
    offsets: Tensor | None
    if not _on_gpu(targets):
        flat, offsets, lengths = _flat_targets(targets, target_lengths, batch)
        reference.check_labels(CTCJob(log_probs, flat, offsets, lengths, lengths, blank), labels)
        rows, offsets, lengths = (one.to(device) for one in (flat, offsets, lengths))
    else:
        rows, lengths = targets, _gpu_target_lengths(targets, target_lengths, batch)
        offsets = None if targets.dim() == 2 else lengths.cumsum(0) - lengths
    return cuda.CTCBatch(log_probs.float(), rows.to(torch.int64), offsets, inputs, lengths, blank, longest)


def _gpu_target_lengths(targets: Tensor, lengths: Lengths | None, batch: int) -> Tensor:
    """The lengths (B,) of targets on a GPU."""
    if targets.is_floating_point():
        raise UserError(f"targets must be whole numbers, got {targets.dtype}.")
    if lengths is None and targets.dim() != 2:
        raise UserError("Concatenated targets need target_lengths.", "Give the length of each.")
    if targets.dim() == 2 and len(targets) != batch:
        raise UserError(f"targets of shape {tuple(targets.shape)} do not go with a batch of {batch}.")
    if lengths is None:
        return torch.full((batch,), targets.shape[1], device=targets.device)
    if _on_gpu(lengths):
        return _shaped(lengths, batch, "target_lengths", targets.device)
    found = _as_lengths(lengths, batch, "target_lengths")
    if targets.dim() == 2 and int(found.max()) > targets.shape[1]:
        raise UserError(
            f"targets of shape {tuple(targets.shape)} do not go with target_lengths {found.tolist()} "
            f"and a batch of {batch}."
        )
    if targets.dim() == 1 and int(found.sum()) != len(targets):
        raise UserError(f"target_lengths add up to {int(found.sum())}, but there are {len(targets)} labels.")
    return found.to(targets.device)


def _gpu_align(frames: Tensor, labels: Tensor, blank: int) -> tuple[float, list[int]]:
    """The best path's log-probability and its states, from the GPU's frames (1, T, V)."""
    scores, path = cuda.align(_gpu_batch(frames, labels[None], None, None, blank))
    return scores.item(), path[0].tolist()


def _host_align(engine: str, job: CTCJob) -> tuple[float, list[int]]:
    if engine != "native":
        return align(job.log_probs[0].double().tolist(), job.targets.tolist(), job.blank)
    return align_native(job.log_probs[0].float().numpy(), job.targets.tolist(), job.blank)


def _choose(backend: str, log_probs: Tensor, longest: int) -> str:
    """The engine: of those that can do it, the fastest, or the one that is named."""
    if backend not in BACKENDS:
        raise unknown_name("backend", backend, BACKENDS)
    reasons = {"cuda": cuda.refuses(log_probs, longest), "native": None, "reference": None}
    if "native" not in ENGINES:
        reasons["native"] = "it was not built"
    elif log_probs.dtype == torch.float64:
        reasons["native"] = "it computes in float32, got torch.float64"
    if backend == "auto":
        return next(name for name, reason in reasons.items() if reason is None)
    if reasons[backend] is not None:
        raise UserError(f"The backend {backend!r} cannot do this: {reasons[backend]}.", "Use backend='auto'.")
    return backend


def _native_losses(job: CTCJob) -> Tensor:
    from unrolled.kernels.ctc import native_ops as ctc_ops

    log_probs = job.log_probs.float().cpu()  # from a GPU: two megabytes for 32 × 500 × 32
    losses = ctc_ops.ctc(job._replace(log_probs=log_probs)).losses
    if not torch.compiler.is_compiling() and bool(losses.isnan().any()):
        raise reference.not_finite(job)
    return losses.to(job.log_probs.device)
