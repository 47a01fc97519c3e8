"""The reference of CTC (Graves et al. 2006): the forward algorithm in plain torch, in logarithms and float64.

The states z of a target are a blank, its first label, a blank, its second label, …, a blank: 2L + 1 of them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from unrolled.errors import UserError

NEVER = -1e30  # log 0, but finite, so that no derivative is NaN


class CTCJob(NamedTuple):
    """A checked call: B sequences with concatenated labels."""

    log_probs: Tensor  # (B, T, V)
    targets: Tensor  # (ΣL,) int64, on the CPU as all the lengths are
    offsets: Tensor  # (B,)
    input_lengths: Tensor
    target_lengths: Tensor
    blank: int


def losses(job: CTCJob) -> Tensor:
    """−log p of each target (B,); any order of derivative.

        α_t(s) = log p_t(z_s) + log(e^α_t-1(s) + e^α_t-1(s-1) + [z_s ≠ z_s-2 and no blank] e^α_t-1(s-2))

    over the states z.
    """
    device = job.log_probs.device
    x = job.log_probs.double()
    if bool((~(x.detach() <= 1e6)).any()):
        inside = torch.arange(x.shape[1], device=device) < job.input_lengths.to(device)[:, None]
        if bool((~(x.detach() <= 1e6)).any(-1).logical_and(inside).any()):
            raise not_finite(job)
        x = x.masked_fill(~inside[..., None], 0.0)
    x = x.clamp(min=NEVER)
    steps = x.shape[1]
    states, skips = _states(job)
    states, skips, lengths = states.to(device), skips.to(device), job.input_lengths.to(device)
    before = torch.where(torch.arange(states.shape[1], device=device) == 0, 0.0, NEVER)
    nothing = x[:, :0].sum((1, 2))  # (B,) zeros that depend on x: a gradient even without frames
    alpha = before + nothing[:, None]  # before the first frame: as after a blank
    for t in range(steps):
        one = torch.nn.functional.pad(alpha[:, :-1], (1, 0), value=NEVER)
        two = torch.nn.functional.pad(alpha[:, :-2], (2, 0), value=NEVER).masked_fill(~skips, NEVER)
        new = torch.stack([alpha, one, two[:, : alpha.shape[1]]]).logsumexp(0) + x[:, t].gather(1, states)
        alpha = torch.where((lengths > t)[:, None], new, alpha)
    last = 2 * job.target_lengths.to(device)[:, None]
    ends = alpha.gather(1, torch.cat([last, (last - 1).clamp(min=0)], dim=1))  # (B, 2)
    single = (last == 0) & torch.tensor([False, True], device=device)  # an empty target ends in one state only
    total = ends.masked_fill(single, NEVER).logsumexp(1)
    return torch.where(total < NEVER / 2, torch.inf, -total)


def check_values(job: CTCJob) -> None:
    """Check lengths and labels, which the kernels trust."""
    (_, steps, labels), frames, lengths = job.log_probs.shape, job.input_lengths, job.target_lengths
    if bool(((frames < 0) | (frames > steps)).any()):
        raise UserError(
            f"input_lengths has {frames.tolist()}, but there are {steps} frames.", f"Use lengths from 0 to {steps}."
        )
    if bool((lengths < 0).any()) or bool((job.offsets + lengths > len(job.targets)).any()):
        raise UserError(f"target_lengths {lengths.tolist()} do not go with {len(job.targets)} labels in all.")
    check_labels(job, labels)


def check_labels(job: CTCJob, labels: int) -> None:
    """Check that targets hold labels, and no blank."""
    longest = int(job.target_lengths.max()) if len(job.target_lengths) else 0
    if longest == 0:
        return
    steps = torch.arange(longest)
    places = (job.offsets[:, None] + steps).clamp(max=len(job.targets) - 1)  # (B, L)
    found = job.targets[places]
    wrong = ((found < 0) | (found >= labels) | (found == job.blank)) & (steps < job.target_lengths[:, None])
    if bool(wrong.any()):
        sample, place = wrong.nonzero()[0].tolist()
        raise UserError(
            f"The target of sample {sample} holds the label {int(found[sample, place])}.",
            f"Labels go from 0 to {labels - 1}, without the blank {job.blank}.",
        )


def occupancy(job: CTCJob) -> Tensor:
    """The probability of each state at each frame of the first sequence, (T, 2L + 1)."""
    log_probs = job.log_probs[0]
    states, skips = (table[0] for table in _states(job))
    with torch.enable_grad():
        added = torch.zeros(len(log_probs), len(states), dtype=torch.float64, requires_grad=True)
        scores = log_probs.double().clamp(min=NEVER)[:, states] + added  # (T, 2L + 1)
        alpha = torch.where(torch.arange(len(states)) == 0, 0.0, torch.tensor(NEVER, dtype=torch.float64))
        for row in scores:
            one = torch.nn.functional.pad(alpha[:-1], (1, 0), value=NEVER)
            two = torch.nn.functional.pad(alpha, (2, 0), value=NEVER)[: len(states)].masked_fill(~skips, NEVER)
            alpha = torch.stack([alpha, one, two]).logsumexp(0) + row
        total = alpha[-2:].logsumexp(0)
        (found,) = torch.autograd.grad(total, added)
    return found.float()


def _states(job: CTCJob) -> tuple[Tensor, Tensor]:
    """The labels of all states (B, 2L + 1), padded with blanks, and which may follow the state two before."""
    batch, longest = len(job.target_lengths), int(job.target_lengths.max()) if len(job.target_lengths) else 0
    states = torch.full((batch, 2 * longest + 1), job.blank)
    for row, (offset, length) in enumerate(zip(job.offsets.tolist(), job.target_lengths.tolist(), strict=True)):
        states[row, 1 : 2 * length : 2] = job.targets[offset : offset + length]
    skips = torch.zeros_like(states, dtype=torch.bool)
    skips[:, 2:] = (states[:, 2:] != states[:, :-2]) & (states[:, 2:] != job.blank)
    return states, skips


def not_finite(job: CTCJob) -> UserError:
    """The error of log-probabilities that are not numbers."""
    for row, length in enumerate(job.input_lengths.tolist()):
        bad = ~(job.log_probs[row, :length].detach() <= 1e6)
        if bool(bad.any()):
            frame, label = bad.nonzero()[0].tolist()
            value = job.log_probs[row, frame, label].item()
            return UserError(
                f"log_probs[{row}, {frame}, {label}] is {value}.",
                "The network's weights may not be finite: use a lower learning rate, or clip gradients.",
            )
    raise AssertionError("a loss is NaN though all log-probabilities are numbers")
