"""Linear-chain conditional random fields: exact forward algorithm and Viterbi, batched and masked."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from unrolled.nn.crf_partition import log_partition

FORBIDDEN = -1e4  # score of a forbidden transition: finite, so that a path always remains


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
