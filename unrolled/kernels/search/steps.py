"""Steps of searches over tokens that have kernels of their own on a GPU."""

from __future__ import annotations

import torch
from torch import Tensor

from unrolled.kernels.search.cuda import engine


def trace_back(chosen: Tensor, tokens: Tensor, origins: Tensor, times: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    """The way back of outputs (B, n) through the history of a beam search, from hypothesis `starts` of step `times`.

    The history of T steps has the continuations of each row, `tokens` and the hypotheses `origins` that they continue
    (T, B, C), and those that were `chosen` as the hypotheses of the next step (T, B, W). Returns the tokens (B·n, T)
    of each output before its last step, zeros after them, and its hypothesis at each step.

    >>> history = torch.tensor([[[0, 1]], [[1, 0]]])  # two steps of one row with two hypotheses
    >>> made = trace_back(history, history + 5, torch.zeros_like(history), torch.tensor([[1]]), torch.tensor([[1]]))
    >>> [one.tolist() for one in made]
    [[[6, 0]], [[0, 1]]]
    """
    if engine.ready(chosen.device):
        return engine.trace_back(chosen, tokens, origins, times, starts)
    steps, rows = chosen.shape[:2]
    row = torch.arange(rows, device=chosen.device)[:, None]
    traced, path = (torch.zeros(steps, *times.shape, dtype=torch.int64, device=chosen.device) for _ in range(2))
    at = starts
    for time in range(steps - 1, -1, -1):
        inside = time < times
        column = chosen[time, row, at]
        traced[time] = torch.where(inside, tokens[time, row, column], 0)
        path[time] = at = torch.where(inside, origins[time, row, column], at)
    return traced.flatten(1).t(), path.flatten(1).t()
