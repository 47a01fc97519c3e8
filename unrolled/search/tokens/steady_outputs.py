"""The outputs of a search in steps of fixed shapes: chosen and traced back through its history on the device."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice, repeat
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from unrolled.kernels.search.steps import trace_back
from unrolled.search.tokens.hypotheses import BeamResult, Hypothesis, nan_scores, nothing_left

if TYPE_CHECKING:
    from unrolled.search.tokens.beam import Beam

INF = float("inf")


@dataclass(frozen=True)
class History:
    """Everything that a search of T steps kept: C continuations of each row at each step, W of which went on."""

    steps: Tensor  # (B,), of each row, until it was done
    limits: Tensor  # (B,), the most steps; rows of padding have none
    totals: Tensor  # (T, B, C), the best first
    tokens: Tensor  # (T, B, C)
    origins: Tensor  # (T, B, C), the hypotheses that they continue
    chosen: Tensor  # (T, B, W), the continuations that became the hypotheses of the next step
    endings: Tensor  # (T, B, W), totals of each hypothesis with the end as its next token
    cover: Tensor | None  # (T, B, W), the coverage term of each hypothesis
    scores: Tensor  # (B, W), of the outputs that ended, the best first; -inf where there is none
    places: Tensor  # (B, W), time · C + continuation of each of them
    divisors: Tensor  # of outputs of 0, 1, … tokens
    attention: Tensor | None  # (T, B, W, S)


class _Found(NamedTuple):
    """Outputs (B, n): hypothesis `origin` of a row at a step, finished by one more token. The best come first."""

    real: Tensor  # False: there are fewer
    times: Tensor
    origins: Tensor
    totals: Tensor
    scores: Tensor
    tokens: Tensor  # -1: it ended

    def gather(self, places: Tensor) -> _Found:
        return _Found(*(one.gather(1, places) for one in self))


def results_of(history: History, beam: Beam, rows: int, end: int, positions: int | None) -> list[BeamResult]:
    """The best outputs of the first rows; `positions` are the real ones of the memory, where its attention is kept."""
    broken = _broken(history)
    found = _found(history, beam, end)
    tokens, path = trace_back(
        history.chosen, history.tokens, history.origins, found.times, found.origins
    )  # (B·n, T) twice
    attention = _attention(history, found, path, positions)
    _check(history, broken)
    real, times, _, totals, scores, last = (one.flatten().tolist() for one in found)
    looked_at = repeat(None) if attention is None else attention
    outputs = iter(zip(real, times, totals, scores, last, tokens.tolist(), looked_at, strict=False))
    results = []
    for _ in range(rows):
        some = islice(outputs, beam.n_best)
        results.append(
            BeamResult(
                [
                    Hypothesis(
                        before[:time] if token < 0 else [*before[:time], token],
                        total,
                        score,
                        token < 0,
                        None if looked is None else looked[: time + 1].clone(),
                    )
                    for there, time, total, score, token, before, looked in some
                    if there
                ]
            )
        )
    return results


def _found(history: History, beam: Beam, end: int) -> _Found:
    """The best outputs: those that ended before those that were cut, of equal scores the one found first."""
    ended = _ended(history)
    cut, endings = _at_limit(history, beam, end)
    every = _Found(*(torch.cat(parts, 1) for parts in zip(ended, endings, cut, strict=True)))
    scores = torch.where(every.real, every.scores, -INF)
    order = scores.sort(dim=-1, descending=True, stable=True).indices
    kind = torch.where(every.real, torch.where(every.tokens < 0, 0, 1), 2).gather(1, order)
    order = order.gather(1, kind.sort(dim=-1, stable=True).indices)
    return every.gather(order[:, : beam.n_best])


def _ended(history: History) -> _Found:
    """The outputs that ended before the limit (B, W)."""
    rows = torch.arange(len(history.places), device=history.places.device)[:, None]
    columns = history.totals.shape[2]
    places = history.places.clamp(min=0)
    at = places // columns, rows, places % columns
    none = torch.full_like(places, -1)
    return _Found(history.places >= 0, at[0], history.origins[at].long(), history.totals[at], history.scores, none)


def _at_limit(history: History, beam: Beam, end: int) -> tuple[_Found, _Found]:
    """The best continuations of rows at their limit, which are cut (B, C), and every hypothesis with an end (B, W).

    Every hypothesis may still end there, though others rank before it.
    """
    size, limits, device = beam.size, history.limits, history.limits.device
    rows, last = torch.arange(len(limits), device=device), (history.steps - 1).clamp(min=0)
    there = (history.steps == limits)[:, None]
    tokens, origins = history.tokens[last, rows].long(), history.origins[last, rows].long()  # (B, C)
    totals, endings = history.totals[last, rows], history.endings[last, rows]

    def found(real: Tensor, origins: Tensor, totals: Tensor, tokens: Tensor) -> _Found:
        scores = totals / history.divisors[last + 1][:, None]
        if history.cover is not None:
            scores = scores + history.cover[last, rows].gather(1, origins)
        times = last[:, None].expand_as(origins)
        return _Found(there & real & (totals > -INF), times, origins, totals, scores, tokens)

    cut = found(tokens != end, origins, totals, tokens)
    all_origins = torch.arange(size, device=device).expand(len(limits), -1)
    done = torch.zeros_like(all_origins).scatter_add_(1, origins[:, :size], (tokens[:, :size] == end).long()) > 0
    # greedy search ends only where the end is likeliest
    may_end = ~done if size > 1 else torch.zeros_like(done)
    return cut, found(may_end, all_origins, endings, torch.full_like(all_origins, -1))


def _broken(history: History) -> Tensor:
    """(T, B), True at steps in which a row had nothing to go on with."""
    best = history.totals[..., 0]
    seen = torch.arange(len(best), device=best.device)[:, None] < history.steps
    return ~(best > -INF) & seen


def _check(history: History, broken: Tensor) -> None:
    """Raise the error of the first such step."""
    if not bool(broken.any()):
        return
    best, outputs = history.totals[..., 0].cpu(), (history.places[:, 0] >= 0).tolist()
    seen = torch.arange(len(best))[:, None] < history.steps.cpu()
    for time in broken.any(1).nonzero()[:, 0].tolist():
        rows = broken[time].nonzero()[:, 0].tolist()
        if bool((best[time].isnan() & seen[time]).any()):
            raise nan_scores(time + 1, rows[0])
        for row in rows:
            if not outputs[row]:
                raise nothing_left(time + 1, row)


def _attention(history: History, found: _Found, path: Tensor, positions: int | None) -> Tensor | None:
    """The attention (B·n, T, S) of each output at each step, on the host."""
    if history.attention is None:
        return None
    rows = torch.arange(len(path), device=path.device)[:, None] // found.times.shape[1]
    times = torch.arange(path.shape[1], device=path.device)
    return history.attention[times, rows, path][..., :positions].cpu()
