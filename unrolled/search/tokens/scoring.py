"""Scores of known outputs, equal to those a search gives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unrolled.errors import UserError
from unrolled.search.limits import Limits, check_tokens
from unrolled.search.scorers.ranking import Ranking
from unrolled.search.scorers.scorer import Scorers
from unrolled.search.tokens.generation import Token, likeliest
from unrolled.search.tokens.hypotheses import Hypothesis
from unrolled.search.tokens.token_model import TokenModel, checked_step, select
from unrolled.search.torch_arrays import torch_arrays


@torch.no_grad()
def score_targets(
    model: TokenModel,
    targets: Sequence[Sequence[int]],
    limits: Limits,
    *,
    start: int,
    memory: Any = None,
    memory_mask: Tensor | None = None,
    ranking: Ranking = Ranking(),  # noqa: B008, it is frozen
) -> list[Hypothesis]:
    """Each target with its end token as a hypothesis: the same log-probability and score that `beam_search` gives it.

    A target that the limits or scorers forbid has the score -inf; max_tokens is not checked.

    >>> from unrolled.search import TokenStep
    >>> class Coin:
    ...     def start(self, memory):
    ...         return None
    ...     def step(self, tokens, state):
    ...         return TokenStep(torch.full((len(tokens), 2), 0.5).log(), state)
    >>> [round(h.log_prob, 4) for h in score_targets(Coin(), [[0, 0], []], Limits(end=1), start=0)]
    [-2.0794, -0.6931]
    """
    if limits.end is None:
        raise UserError("Scoring outputs needs an end token.", "Give one: Limits(end=...).")
    if not targets:
        return []
    device, rows = torch.device(getattr(model, "device", "cpu")), len(targets)
    lengths = torch.tensor([len(target) + 1 for target in targets], device=device)
    longest = int(lengths.max())
    padded = torch.tensor([[*target, *[limits.end] * (longest - len(target))] for target in targets], device=device)
    state, read = model.start(memory), torch.full((rows,), start, device=device)
    log_probs, totals, scores = torch.zeros(3, rows, dtype=torch.float64, device=device)
    for time in range(longest):
        step = checked_step(model.step(read, state), rows, "step")
        vocabulary = step.scores.shape[-1]
        if time == 0:
            limits.check_ids(vocabulary, start=start)
            for number, target in enumerate(targets):
                check_tokens(f"targets[{number}]", target, vocabulary)
            scorers = Scorers([*limits.all_scorers(vocabulary), *ranking.scorers(memory_mask)], torch_arrays(device))
            scored = scorers.initial(rows)
        scored = scorers.attend(scored, step.attention)
        added, masked = scorers.next_scores(scored, rows, vocabulary)
        added = limits.lifted(added, range(rows), [time] * rows)
        blocked = limits.blocked(range(rows), [time] * rows, vocabulary, torch_arrays(device), masked).expand(rows, -1)
        state, read = step.state, padded[:, time]
        places = read[:, None]
        own = step.log_probs.gather(-1, places).squeeze(-1).double()
        full = own if added is None else own + added.expand(rows, -1).gather(-1, places).squeeze(-1).double()
        log_probs += own.where(time < lengths, 0.0)
        totals += full.masked_fill(blocked.gather(-1, places).squeeze(-1), -torch.inf).where(time < lengths, 0.0)
        scored = scorers.advance(scored, read)
        ended = (lengths == time + 1).nonzero().squeeze(-1)
        scores[ended] = scorers.final(select(scored, ended), totals[ended])
    return [
        Hypothesis([int(token) for token in target], log_prob, score, True)
        for target, log_prob, score in zip(targets, log_probs.tolist(), scores.tolist(), strict=True)
    ]


@torch.no_grad()
def token_scores(
    model: TokenModel, targets: Sequence[Sequence[int]], *, start: int, memory: Any = None, top: int = 0
) -> list[list[Token]]:
    """Each target token by token, with the model's log-probability of each and the `top` likeliest in its place.

    >>> from unrolled.search import TokenStep
    >>> class Coin:
    ...     def start(self, memory):
    ...         return None
    ...     def step(self, tokens, state):
    ...         return TokenStep(torch.tensor([[0.75, 0.25]] * len(tokens)).log(), state)
    >>> [[(token.id, round(token.log_prob, 4)) for token in row] for row in token_scores(Coin(), [[1, 0], []], start=0)]
    [[(1, -1.3863), (0, -0.2877)], []]
    """
    device, rows = torch.device(getattr(model, "device", "cpu")), len(targets)
    found: list[list[Token]] = [[] for _ in targets]
    if not rows:
        return found
    state, read = model.start(memory), torch.full((rows,), start, device=device)
    for time in range(max(map(len, targets))):
        step = checked_step(model.step(read, state), rows, "step")
        read = torch.tensor([target[time] if time < len(target) else start for target in targets], device=device)
        log_probs = step.log_probs
        tops = likeliest(log_probs, top) if top else [()] * rows
        own = log_probs.gather(-1, read[:, None]).squeeze(-1).tolist()
        for row, target in enumerate(targets):
            if time < len(target):
                found[row].append(Token(row, target[time], own[row], top=tops[row]))
        state = step.state
    return found
