"""The normaliser of a linear-chain CRF, log Σ over all tag sequences of exp score, as a torch operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from unrolled.cells.apart import row_engine
from unrolled.kernels.native_buffers import Allocate, Sections
from unrolled.kernels.native_operator import Kernel, NativeOperator
from unrolled.kernels.unattended import is_unattended

LARGEST_SPREAD = 300.0  # of the transitions, in nats, that scaled float64 numbers represent without underflow


class ChainInputs(NamedTuple):
    """Scores of a chain of tags."""

    emissions: Tensor  # (B, T, K)
    transitions: Tensor  # (K, K), from, to
    start: Tensor  # (K,)
    end: Tensor  # (K,)
    lengths: Tensor  # (B,)


class ChainResults(NamedTuple):
    """The normaliser of each sequence (B,), and the buffer for the backward pass in float64."""

    total: Tensor
    saved: Tensor


def log_partition(emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, lengths: Tensor) -> Tensor:
    """log Σ over all tag sequences of exp score (the forward algorithm), (B,).

    Scaled float64 numbers are fast and exact while transitions differ by less than `LARGEST_SPREAD`; beyond that it
    computes with logarithms.
    """
    if emissions.is_cuda and is_unattended():
        return log_partition_of_logs(emissions, transitions, start, end, lengths)
    total = chain(ChainInputs(emissions, transitions, start, end, lengths)).total
    return total.to(torch.promote_types(emissions.dtype, torch.float32))


def log_partition_of_logs(
    emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, lengths: Tensor
) -> Tensor:
    """`log_partition` by its definition, in logarithms; any order of derivative."""
    alpha = start + emissions[:, 0]  # (B, K)
    for t in range(1, emissions.shape[1]):
        new = (alpha[:, :, None] + transitions).logsumexp(1) + emissions[:, t]
        alpha = torch.where((lengths > t)[:, None], new, alpha)
    return torch.where(lengths > 0, (alpha + end).logsumexp(1), 0.0)


def _in_logs(inputs: ChainInputs) -> tuple[Tensor]:
    return (log_partition_of_logs(*inputs).double(),)


def _spread_too_far(inputs: ChainInputs) -> bool:
    ends = torch.cat([inputs.transitions, inputs.end[:, None]], dim=1).detach()  # (K, K + 1): all from a tag
    return float((ends.amax(0) - ends.amin(0)).max()) > LARGEST_SPREAD


def _sections(inputs: ChainInputs) -> Sections:
    batch, steps, tags = inputs.emissions.shape
    rows = steps * batch  # time first, longest sequence first
    return Sections({"local": (rows, tags), "alphas": (rows, tags), "scales": (rows, 1), "ending": (batch, 1)})


class _Rows:
    """The sequences by falling length, so that the rows of a step are the first ones, and the scaled weights."""

    def __init__(self, inputs: ChainInputs) -> None:
        lengths, steps = inputs.lengths, inputs.emissions.shape[1]
        self.order = lengths.argsort(descending=True, stable=True)
        self.lengths = lengths[self.order]
        self.real = torch.arange(steps, device=lengths.device)[:, None] < self.lengths  # (T, B)
        self.running: list[int] = self.real.sum(1).tolist()
        self.pull = inputs.transitions.amax(0).double()  # the largest transition to a tag, moved into its score
        self.between = (inputs.transitions.double() - self.pull).exp()  # (K, K)
        self.last = (inputs.end.double() - inputs.end.max()).exp()
        self.at_end = (self.lengths - 1).clamp(min=0), torch.arange(len(lengths), device=lengths.device)


def _forward(inputs: ChainInputs, allocate: Allocate | None) -> ChainResults:
    """The forward algorithm on numbers scaled to sum to 1 at every step."""
    inputs = ChainInputs(*(part.detach() for part in inputs))
    emissions, sections = inputs.emissions, _sections(inputs)
    batch, steps, _ = emissions.shape
    saved = emissions.new_zeros(sections.size, dtype=torch.float64)
    if _spread_too_far(inputs):
        return ChainResults(_in_logs(inputs)[0], saved if allocate else saved[:0])
    rows = _Rows(inputs)
    parts = {name: part.view(steps, batch, -1) for name, part in sections.views(saved).items() if name != "ending"}
    local, alphas, scales = parts["local"], parts["alphas"], parts["scales"].fill_(1)
    local.copy_(emissions[rows.order].transpose(0, 1))
    local[0] += inputs.start
    local[1:] += rows.pull
    highest = local.amax(-1, keepdim=True)
    local.sub_(highest).exp_()  # (T, B, K)
    for t, running in enumerate(rows.running):
        if running == 0:
            break
        now = local[t, :running]
        alpha = now if t == 0 else _times(alphas[t - 1, :running], rows.between).mul_(now)
        scales[t, :running] = alpha.sum(-1, keepdim=True)
        torch.div(alpha, scales[t, :running], out=alphas[t, :running])
    ending = (alphas[rows.at_end] * rows.last).sum(-1)  # (B,)
    sections.views(saved)["ending"].copy_(ending[:, None])
    logs = ((scales.log() + highest).squeeze(-1) * rows.real).sum(0)
    result = torch.where(rows.lengths > 0, logs + ending.log() + inputs.end.max(), 0.0)
    total = torch.empty_like(result)
    total[rows.order] = result
    return ChainResults(total, saved if allocate else saved[:0].clone())


def _times(rows: Tensor, matrix: Tensor) -> Tensor:
    """rows @ matrix; where rows are apart, each as a product of its own."""
    if row_engine() is None:
        return rows @ matrix
    return torch.bmm(rows[:, None], matrix.expand(len(rows), *matrix.shape)).squeeze(1)


def _backward(inputs: ChainInputs, kept: ChainResults, d: ChainResults, needed: Sequence[bool]) -> dict[str, Tensor]:
    """The backward algorithm; the transitions' gradient, the expected number of each, is one matrix product."""
    if d.total is None:
        return {}
    if _spread_too_far(inputs):
        return _backward_in_logs(inputs, d.total)
    batch, steps, _ = inputs.emissions.shape
    rows, views = _Rows(inputs), _sections(inputs).views(kept.saved)
    local, alphas, scales = (views[name].view(steps, batch, -1) for name in ("local", "alphas", "scales"))
    weight = d.total.double()[rows.order][:, None]  # (B, 1)
    betas = torch.zeros_like(alphas)  # scaled so that alpha · beta is a tag's probability, times the weight
    arrivals = torch.zeros_like(alphas)  # betas before step t, with the tag's own score
    before = rows.between.t().contiguous()
    done = 0  # rows that have begun, from their last step backwards
    first = weight * rows.last / views["ending"]  # (B, K), at each row's last step
    for t in range(steps - 1, -1, -1):
        running = rows.running[t]
        if done:
            betas[t, :done] = _times(arrivals[t + 1, :done], before)
        if running > done:
            betas[t, done:running] = first[done:running]
        done = running
        if done and t:
            arrival = arrivals[t, :done]
            torch.mul(betas[t, :done], local[t, :done], out=arrival)
            arrival.div_(scales[t, :done])
    marginals = alphas * betas  # (T, B, K)
    final = marginals[rows.at_end] * (rows.lengths > 0)[:, None]
    to_emissions = torch.empty_like(marginals.transpose(0, 1), memory_format=torch.contiguous_format)
    to_emissions[rows.order] = marginals.transpose(0, 1)
    found = {
        "emissions": to_emissions,
        "transitions": torch.einsum("tbi,tbj->ij", alphas[:-1], arrivals[1:]) * rows.between,
        "start": marginals[0].sum(0),
        "end": final.sum(0),
    }
    return {name: gradient.to(getattr(inputs, name).dtype) for name, gradient in found.items()}


def _backward_in_logs(inputs: ChainInputs, d_total: Tensor) -> dict[str, Tensor]:
    with torch.enable_grad():
        free = {name: getattr(inputs, name).detach().requires_grad_() for name in inputs._fields[:-1]}
        (total,) = _in_logs(inputs._replace(**free))
        # one step has no transitions: their gradient is zero
        leaves = list(free.values())
        found = torch.autograd.grad(total, leaves, d_total, allow_unused=True, materialize_grads=True)
    return {name: gradient.contiguous() for name, gradient in zip(free, found, strict=True)}


def _fake(inputs: ChainInputs, save: bool) -> ChainResults:
    like = inputs.emissions
    size = _sections(inputs).size if save else 0
    return ChainResults(*(like.new_empty(shape, dtype=torch.float64) for shape in (like.shape[0], size)))


chain = NativeOperator(
    Kernel(
        "crf_log_partition",
        "The CRF",
        ChainInputs,
        ChainResults,
        differentiable="end",
        forward=_forward,
        backward=_backward,
        fake=_fake,
        fake_gradient=lambda inputs, name: getattr(inputs, name).new_empty(getattr(inputs, name).shape),
        reference=_in_logs,
    )
)
