"""The outputs of a search in steps of fixed shapes, traced back through its history on the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unrolled.search.tokens.hypotheses import BeamResult, Hypothesis, nan_scores, nothing_left

if TYPE_CHECKING:
    from unrolled.search.tokens.beam import Beam

Numbers = NDArray[Any]


@dataclass(frozen=True)
class History:
    """Everything that a search of T steps kept: C continuations of each row at each step, W of which went on."""

    steps: list[int]  # of each row, until it was done
    totals: Numbers  # (T, B, C), the best first
    tokens: Numbers  # (T, B, C)
    origins: Numbers  # (T, B, C), the hypotheses that they continue
    chosen: Numbers  # (T, B, W), the continuations that became the hypotheses of the next step
    endings: Numbers  # (T, B, W), totals of each hypothesis with the end as its next token
    cover: Numbers | None  # (T, B, W), the coverage term of each hypothesis
    scores: Numbers  # (B, W), of the outputs that ended, the best first; -inf where there is none
    places: Numbers  # (B, W), time · C + continuation of each of them
    divisors: Numbers  # of outputs of 0, 1, … tokens
    attention: Tensor | None  # (T, B, W, S), on the device


class _Found(NamedTuple):
    """An output: hypothesis `origin` of a row at a step, finished by one more token."""

    row: int
    time: int
    origin: int
    total: float
    score: float
    token: int | None  # None: it ended


def results_of(
    history: History, beam: Beam, lengths: Sequence[int], end: int, positions: int | None
) -> list[BeamResult]:
    """The best outputs of each row; `positions` are the real ones of the memory, where its attention is kept."""
    _check(history)
    found = [
        _at_limit(history, beam, row, end) if history.steps[row] == length else _ended(history, row, beam.n_best)
        for row, length in enumerate(lengths)
    ]
    flat = [one for row in found for one in row]
    tokens, path = _traced(history, flat)
    attention = _attention(history, flat, path, positions)
    made = iter(
        Hypothesis(
            tokens[i, : one.time].tolist() + ([] if one.token is None else [one.token]),
            one.total,
            one.score,
            one.token is None,
            None if attention is None else attention[i, : one.time + 1].clone(),
        )
        for i, one in enumerate(flat)
    )
    return [BeamResult([next(made) for _ in row]) for row in found]


def _check(history: History) -> None:
    """Raise the error of the first step in which a row had nothing to go on with."""
    best = history.totals[..., 0]  # (T, B)
    seen = np.arange(len(best))[:, None] < np.array(history.steps)
    broken = ~(best > -np.inf) & seen
    for time in np.nonzero(broken.any(1))[0].tolist():
        rows = np.nonzero(broken[time])[0].tolist()
        if np.isnan(best[time][seen[time]]).any():
            raise nan_scores(time + 1, rows[0])
        for row in rows:
            if history.places[row, 0] < 0:
                raise nothing_left(time + 1, row)


def _ended(history: History, row: int, most: int) -> list[_Found]:
    """The outputs of a row that ended before its limit."""
    columns, found = history.totals.shape[2], []
    for place, score in zip(history.places[row, :most].tolist(), history.scores[row, :most].tolist(), strict=True):
        if place >= 0:
            time, column = divmod(place, columns)
            at = (time, row, column)
            found.append(_Found(row, time, int(history.origins[at]), float(history.totals[at]), score, None))
    return found


def _at_limit(history: History, beam: Beam, row: int, end: int) -> list[_Found]:
    """The outputs of a row at its limit: every hypothesis may still end, though others rank before it.

    The best continuations are cut, and come after all that ended.
    """
    size, time = beam.size, history.steps[row] - 1
    tokens, origins = history.tokens[time, row].tolist(), history.origins[time, row].tolist()

    def found(origin: int, total: float, token: int | None) -> _Found:
        score = total / float(history.divisors[time + 1])
        if history.cover is not None:
            score += float(history.cover[time, row, origin])
        return _Found(row, time, origin, total, score, token)

    totals = history.totals[time, row].tolist()
    cut = [
        found(origin, total, token)
        for token, origin, total in zip(tokens, origins, totals, strict=True)
        if token != end and total > -np.inf
    ]
    ended = _ended(history, row, size)
    if size > 1:  # greedy search ends only where the end is likeliest
        done = {origin for token, origin in zip(tokens[:size], origins[:size], strict=True) if token == end}
        endings = history.endings[time, row].tolist()
        ended += [found(w, total, None) for w, total in enumerate(endings) if total > -np.inf and w not in done]
    ended.sort(key=lambda one: -one.score)  # of equal scores, the one found first is better
    cut.sort(key=lambda one: -one.score)
    return (ended + cut)[: beam.n_best]


def _traced(history: History, found: Sequence[_Found]) -> tuple[Numbers, Numbers]:
    """The tokens (N, T) of each output before its last step, and its hypothesis (N, T) at each step."""
    steps = len(history.totals)
    rows = np.array([one.row for one in found], dtype=np.int64)
    times = np.array([one.time for one in found], dtype=np.int64)
    at = np.array([one.origin for one in found], dtype=np.int64)
    tokens, path = np.zeros((2, len(found), steps), dtype=np.int64)
    for time in range(steps - 1, -1, -1):
        inside = time < times
        column = history.chosen[time, rows, at]
        tokens[:, time] = history.tokens[time, rows, column]
        at = np.where(inside, history.origins[time, rows, column], at)
        path[:, time] = at
    return tokens, path


def _attention(history: History, found: Sequence[_Found], path: Numbers, positions: int | None) -> Tensor | None:
    """The attention (N, T, S) of each output at each step, on the host."""
    if history.attention is None:
        return None
    device = history.attention.device
    rows = torch.tensor([one.row for one in found], device=device)[:, None]
    times = torch.arange(path.shape[1], device=device)
    looked = history.attention[times, rows, torch.from_numpy(path).to(device)]
    return looked[..., :positions].cpu()
