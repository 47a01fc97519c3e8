"""Linear-chain conditional random fields: exact forward algorithm and Viterbi, batched and masked."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from unrolled.kernels.unattended import is_unattended

FORBIDDEN = -1e4  # score of a forbidden transition: finite, so that a path always remains
LARGEST_SPREAD = 300.0  # of the transitions, in nats, that scaled float64 numbers represent without underflow


class CRF(nn.Module):
    """Scores of whole tag sequences: emissions of each step, plus transitions between tags.

        score(x, y) = start[y_1] + Σ_t emissions[t, y_t] + Σ_t transitions[y_t, y_t+1] + end[y_T]
        log p(y | x) = score(x, y) − log Σ_y' exp score(x, y')

    >>> crf = CRF(3)
    >>> emissions, tags, lengths = torch.randn(2, 5, 3), torch.zeros(2, 5, dtype=torch.long), torch.tensor([5, 2])
    >>> bool((crf(emissions, tags, lengths) <= 0).all())
    True
    >>> [len(path) for path in crf.decode(emissions, lengths)]
    [5, 2]
    """

    def __init__(self, num_tags: int) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(num_tags, num_tags))  # from, to
        self.start = nn.Parameter(torch.zeros(num_tags))
        self.end = nn.Parameter(torch.zeros(num_tags))

    def forward(self, emissions: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """log p(tags) of each sequence: emissions (B, T, K), tags (B, T), lengths (B,) → (B,); 0 if empty."""
        score = self.score(emissions, tags, lengths)
        return score - log_partition(emissions, self.transitions, self.start, self.end, lengths)

    def score(self, emissions: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """score(x, y) of each sequence, (B,)."""
        steps = torch.arange(tags.shape[1], device=tags.device)
        real = steps < lengths[:, None]  # (B, T)
        tags = tags.masked_fill(~real, 0)
        single = emissions.gather(2, tags[..., None]).squeeze(2).to(self.start.dtype) * real
        pairs = self.transitions[tags[:, :-1], tags[:, 1:]] * real[:, 1:]
        last = tags.gather(1, (lengths - 1).clamp(min=0)[:, None]).squeeze(1)
        ends = (self.start[tags[:, 0]] + self.end[last]) * (lengths > 0)
        return single.sum(1) + pairs.sum(1) + ends

    @torch.no_grad()
    def decode(
        self, emissions: Tensor, lengths: Tensor, forbidden: tuple[Tensor, Tensor, Tensor] | None = None
    ) -> list[list[int]]:
        """The most likely tags of each sequence (Viterbi).

        `forbidden` are masks of forbidden transitions (K, K), first tags (K,) and last tags (K,).
        """
        return viterbi(emissions, *self._allowed(forbidden), lengths)

    @torch.no_grad()
    def marginals(
        self, emissions: Tensor, lengths: Tensor, forbidden: tuple[Tensor, Tensor, Tensor] | None = None
    ) -> Tensor:
        """The probability of each tag at each step over all sequences that are not `forbidden`, (B, T, K).

            p(y_t = k | x) = ∂ log Σ_y exp score(x, y) / ∂ emissions[t, k]

        >>> crf = CRF(3)
        >>> crf.marginals(torch.zeros(1, 2, 3), torch.tensor([2]))[0, 0]
        tensor([0.3333, 0.3333, 0.3333])
        """
        with torch.enable_grad():
            free = emissions.detach().to(self.start.dtype).requires_grad_()
            transitions, start, end = (part.detach() for part in self._allowed(forbidden))
            total = log_partition(free, transitions, start, end, lengths).sum()
            (chances,) = torch.autograd.grad(total, free)
        return chances

    def _allowed(self, forbidden: tuple[Tensor, Tensor, Tensor] | None) -> tuple[Tensor, Tensor, Tensor]:
        """The scores of transitions, first and last tags, very low if forbidden."""
        scores = (self.transitions, self.start, self.end)
        if forbidden is None:
            return scores
        first, second, third = (s.masked_fill(mask, FORBIDDEN) for s, mask in zip(scores, forbidden, strict=True))
        return first, second, third


def log_partition(emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, lengths: Tensor) -> Tensor:
    """log Σ over all tag sequences of exp score (the forward algorithm), (B,).

    Scaled float64 numbers are fast and exact while transitions differ by less than `LARGEST_SPREAD`; beyond that it
    computes with logarithms.
    """
    if emissions.is_cuda and is_unattended():
        return log_partition_of_logs(emissions, transitions, start, end, lengths)
    ends = torch.cat([transitions, end[:, None]], dim=1).detach()  # (K, K + 1): all transitions from a tag
    spread = float((ends.amax(0) - ends.amin(0)).max())
    if spread <= LARGEST_SPREAD:
        function = cast(Any, _LogPartition)
        result: Tensor = function.apply(emissions, transitions, start, end, lengths)
        return result
    return log_partition_of_logs(emissions, transitions, start, end, lengths)


def log_partition_of_logs(
    emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, lengths: Tensor
) -> Tensor:
    """`log_partition` by its definition, in logarithms; any order of derivative."""
    alpha = start + emissions[:, 0]  # (B, K)
    for t in range(1, emissions.shape[1]):
        new = (alpha[:, :, None] + transitions).logsumexp(1) + emissions[:, t]
        alpha = torch.where((lengths > t)[:, None], new, alpha)
    return torch.where(lengths > 0, (alpha + end).logsumexp(1), 0.0)


class _LogPartition(torch.autograd.Function):
    """Forward and backward algorithm on numbers scaled to sum to 1 at every step.

    Rows are sorted by falling length, so that the rows of a step are the first ones. The transitions'
    gradient, the expected number of each, is one matrix product over all steps of all rows.
    """

    @staticmethod
    def forward(
        ctx: Any, emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, lengths: Tensor
    ) -> Tensor:
        order = lengths.argsort(descending=True, stable=True)
        ordered = lengths[order]
        steps = emissions.shape[1]
        running = (ordered[None, :] > torch.arange(steps, device=lengths.device)[:, None]).sum(1).tolist()
        scores = emissions.detach()[order].transpose(0, 1).double()  # (T, B, K)
        pull = transitions.amax(0).double()  # the largest transition to a tag, moved into its score
        scores[0] += start
        scores[1:] += pull
        highest = scores.amax(-1, keepdim=True)
        local = (scores - highest).exp_()  # (T, B, K)
        between = (transitions.double() - pull).exp()  # (K, K)
        last = (end.double() - end.max()).exp()

        alphas = torch.zeros_like(local)
        scales = torch.ones_like(highest)
        for t, rows in enumerate(running):
            if rows == 0:
                break
            alpha = local[t, :rows] if t == 0 else (alphas[t - 1, :rows] @ between).mul_(local[t, :rows])
            scales[t, :rows] = alpha.sum(-1, keepdim=True)
            torch.div(alpha, scales[t, :rows], out=alphas[t, :rows])
        final = alphas[(ordered - 1).clamp(min=0), torch.arange(len(ordered), device=lengths.device)]  # (B, K)
        ending = (final * last).sum(-1)  # (B,)
        real = torch.arange(steps, device=lengths.device)[:, None] < ordered  # (T, B)
        logs = ((scales.log() + highest).squeeze(-1) * real).sum(0)
        result = torch.where(ordered > 0, logs + ending.log() + end.max(), 0.0)
        ctx.save_for_backward(order, ordered, local, between, last, alphas, scales, ending)
        ctx.running = running
        ctx.dtypes = emissions.dtype, transitions.dtype
        unsorted = torch.empty_like(result)
        unsorted[order] = result
        return unsorted.to(torch.promote_types(emissions.dtype, torch.float32))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        order, ordered, local, between, last, alphas, scales, ending = ctx.saved_tensors
        weight = gradient.double()[order]  # (B,)
        betas = torch.zeros_like(alphas)  # scaled so that alpha · beta is a tag's probability, times the weight
        arrivals = torch.zeros_like(alphas)  # betas before step t, with the tag's own score
        before = between.t().contiguous()
        done = 0  # rows that have begun, from their last step backwards
        first = weight[:, None] * last / ending[:, None]  # (B, K), at each row's last step
        for t in range(len(ctx.running) - 1, -1, -1):
            rows = ctx.running[t]
            if done:
                torch.mm(arrivals[t + 1, :done], before, out=betas[t, :done])
            if rows > done:
                betas[t, done:rows] = first[done:rows]
            done = rows
            if done and t:
                arrival = arrivals[t, :done]
                torch.mul(betas[t, :done], local[t, :done], out=arrival)
                arrival.div_(scales[t, :done])
        marginals = alphas * betas  # (T, B, K)
        pairs = torch.einsum("tbi,tbj->ij", alphas[:-1], arrivals[1:]) * between
        final = marginals[(ordered - 1).clamp(min=0), torch.arange(len(ordered), device=order.device)]
        to_emissions = torch.empty_like(marginals.transpose(0, 1))
        to_emissions[order] = marginals.transpose(0, 1)
        emissions_dtype, dtype = ctx.dtypes
        return (
            to_emissions.to(emissions_dtype),
            pairs.to(dtype),
            marginals[0].sum(0).to(dtype),
            (final * (ordered > 0)[:, None]).sum(0).to(dtype),
            None,
        )


def viterbi(emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, lengths: Tensor) -> list[list[int]]:
    """The tag sequence of the highest score for each row."""
    order = lengths.argsort(descending=True, stable=True)
    ordered = lengths[order]
    steps, num_tags = emissions.shape[1:]
    running = (ordered[None, :] > torch.arange(steps, device=lengths.device)[:, None]).sum(1).tolist()
    scores = emissions[order].transpose(0, 1).to(start.dtype)  # (T, B, K)
    best = start + scores[0]  # (B, K), of the best path to each tag
    came_from = torch.zeros(steps, len(order), num_tags, dtype=torch.long, device=emissions.device)
    arriving = transitions.t().contiguous()  # (to, from): the maximum is over the last dimension
    for t in range(1, steps):
        rows = running[t]
        if rows == 0:
            break
        reached, came_from[t, :rows] = (best[:rows, None, :] + arriving).max(-1)
        best[:rows] = reached + scores[t, :rows]
    tags = (best + end).argmax(-1)  # (B,), each row's last
    paths = torch.zeros(steps, len(order), dtype=torch.long, device=emissions.device)
    for t in range(steps - 1, -1, -1):
        rows = running[t]
        if rows == 0:
            continue
        paths[t, :rows] = tags[:rows]
        tags[:rows] = came_from[t, :rows].gather(1, tags[:rows, None]).squeeze(1)
    unsorted = torch.empty_like(paths)
    unsorted[:, order] = paths
    return [row[:length] for row, length in zip(unsorted.t().tolist(), lengths.tolist(), strict=True)]
