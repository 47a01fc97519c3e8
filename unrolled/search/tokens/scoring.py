"""The score of outputs that are given: what a search would have said of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unrolled.errors import UserError
from unrolled.search.ranking import Ranking, unread
from unrolled.search.tokens.hypotheses import Hypothesis
from unrolled.search.tokens.token_model import TokenModel, checked_step, is_whole


@torch.no_grad()
def score_targets(
    model: TokenModel,
    targets: Sequence[Sequence[int]],
    *,
    start: int,
    end: int,
    memory: Any = None,
    memory_mask: Tensor | None = None,
    ranking: Ranking = Ranking(),  # noqa: B008, it is frozen
) -> list[Hypothesis]:
    """Each target with its end token as a hypothesis: the same log-probability and score that `beam_search` gives it.

    >>> from unrolled.search.tokens.token_model import TokenStep
    >>> class Coin:
    ...     def start(self, memory):
    ...         return None
    ...     def step(self, tokens, state):
    ...         return TokenStep(torch.full((len(tokens), 2), 0.5).log(), state)
    >>> [round(h.log_prob, 4) for h in score_targets(Coin(), [[0, 0], []], start=0, end=1)]
    [-2.0794, -0.6931]
    """
    if not targets:
        return []
    device = torch.device(getattr(model, "device", "cpu"))
    lengths = torch.tensor([len(target) + 1 for target in targets], device=device)
    longest = int(lengths.max())
    padded = torch.tensor([[*target, *[end] * (longest - len(target))] for target in targets], device=device)
    state, read = model.start(memory), torch.full((len(targets),), start, device=device)
    log_probs = torch.zeros(len(targets), dtype=torch.float64, device=device)
    covered: Tensor | None = None
    for time in range(longest):
        step = checked_step(model.step(read, state), len(targets), "step")
        if time == 0:
            _check(targets, step.scores.shape[-1])
        state, read = step.state, padded[:, time]
        real = time < lengths
        picked = step.log_probs.gather(-1, read[:, None]).squeeze(-1).double()
        log_probs += picked.where(real, 0.0)
        if ranking.coverage:
            if step.attention is None:
                raise UserError("This model has no attention, so there is no coverage.", "Leave out coverage.")
            now = step.attention * real[:, None]
            covered = now if covered is None else covered + now
    missed = None
    if covered is not None:
        mask = torch.ones_like(covered, dtype=torch.bool) if memory_mask is None else memory_mask.to(device)
        missed = unread(covered[:, None], mask)[:, 0]
    scores = ranking.score(log_probs, lengths, missed).tolist()
    return [
        Hypothesis([int(token) for token in target], log_prob, score, True)
        for target, log_prob, score in zip(targets, log_probs.tolist(), scores, strict=True)
    ]


def _check(targets: Sequence[Sequence[int]], vocabulary: int) -> None:
    for number, target in enumerate(targets):
        for token in target:
            if not is_whole(token) or not 0 <= token < vocabulary:
                raise UserError(
                    f"targets[{number}] holds token {token!r}, but the model knows {vocabulary} tokens.",
                    f"Use tokens from 0 to {vocabulary - 1}.",
                )
