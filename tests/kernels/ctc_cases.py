"""Batches for the CTC kernels, drawn for a case, and their losses and gradients by `reference` in float64."""

from __future__ import annotations

import zlib
from typing import Any

import torch
from torch import Tensor

from unrolled.kernels.ctc import reference
from unrolled.kernels.ctc.cuda.engine import CTCBatch, losses
from unrolled.kernels.ctc.reference import CTCJob

Case = dict[str, Any]

PLAIN: Case = {
    "batch": 3, "steps": 20, "labels": 7, "longest": 9, "scale": 1.0, "blank": 0, "flat": False, "time_major": False,
    "zeros": False,
}  # fmt: skip
KINDS = ("random", "repeated", "empty", "infeasible", "full")  # of targets


def draw(case: Case, device: str = "cpu") -> CTCBatch:
    """Ragged sequences, whose targets take turns in the kinds; padding is NaN, and -7 in targets."""
    drawn = torch.Generator().manual_seed(zlib.crc32(repr(case).encode()))
    batch, steps, labels, longest, blank = (case[name] for name in ("batch", "steps", "labels", "longest", "blank"))
    log_probs = (torch.randn(batch, steps, labels, generator=drawn) * case["scale"]).log_softmax(-1)
    if case["zeros"]:
        log_probs[torch.rand(log_probs.shape, generator=drawn) < 0.03] = -torch.inf
    inputs = torch.randint((steps + 1) // 2, steps + 1, (batch,), generator=drawn)
    others = torch.tensor([label for label in range(labels) if label != blank])
    targets, lengths = torch.full((batch, longest), -7), []
    for row in range(batch):
        kind, frames = KINDS[row % len(KINDS)], int(inputs[row])
        length = min(longest, int(torch.randint(0, frames // 2 + 1, (), generator=drawn)))
        if kind in ("infeasible", "full"):
            length = min(longest, frames + (kind == "infeasible"))
        elif kind == "empty":
            length = 0
        chosen = others[torch.randint(len(others), (length,), generator=drawn)]
        if kind == "repeated":
            chosen = chosen[torch.arange(length) // 2]
        elif kind == "full":
            chosen = others[torch.arange(length) % len(others)]
        targets[row, :length] = chosen
        lengths.append(length)
        log_probs[row, frames:] = torch.nan
    counts = torch.tensor(lengths)
    if case["time_major"]:
        log_probs = log_probs.transpose(0, 1).contiguous().transpose(0, 1)
    offsets = counts.cumsum(0) - counts if case["flat"] else None
    if case["flat"]:
        targets = targets[torch.arange(longest) < counts[:, None]]
    moved = [one.to(device) for one in (log_probs, targets, inputs, counts)]
    there = None if offsets is None else offsets.to(device)
    return CTCBatch(moved[0], moved[1], there, moved[2], moved[3], blank, min(longest, steps))


def weights(job: CTCBatch) -> Tensor:
    """Gradients of the losses, all different."""
    return torch.arange(1.0, len(job.log_probs) + 1, device=job.log_probs.device) / 8


def found(job: CTCBatch) -> tuple[Tensor, Tensor]:
    """Losses and gradient of the cuda engine."""
    log_probs = job.log_probs.detach().requires_grad_()
    values = losses(job._replace(log_probs=log_probs))
    (gradient,) = torch.autograd.grad(values, log_probs, weights(job))
    return values.detach(), gradient


def expected(job: CTCBatch) -> tuple[Tensor, Tensor]:
    """The same by `reference`, on the CPU; no gradient flows from a target without a path."""
    log_probs = job.log_probs.detach().cpu().double().requires_grad_()
    lengths, targets = job.target_lengths.cpu(), job.targets.cpu()
    offsets = lengths.cumsum(0) - lengths
    if targets.dim() == 2:
        targets = targets[torch.arange(targets.shape[1]) < lengths[:, None]]
    values = reference.losses(CTCJob(log_probs, targets, offsets, job.input_lengths.cpu(), lengths, job.blank))
    (gradient,) = torch.autograd.grad(values, log_probs, weights(job).cpu().double())
    gradient = gradient.masked_fill(values.detach().isinf()[:, None, None], 0.0)
    return values.detach(), gradient
