"""The steps of searches on an NVIDIA GPU. Their buffers stay where they are, so that a step can be recorded."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from unrolled.kernels.cuda import compiler, launch
from unrolled.kernels.search.cuda import plan
from unrolled.kernels.search.cuda.arguments import SearchArguments
from unrolled.kernels.search.cuda.constants import MOST_FORBIDDEN

DEVICE = "cuda"
MOST_CONTINUATIONS = 512  # W·K of a row: each is compared with each


def ready(device: torch.device) -> bool:
    """True if the kernels run on a device."""
    if device.type != DEVICE or compiler.missing() is not None:
        return False
    return torch.cuda.get_device_capability(device)[0] >= 8


def _pointed(given: SearchArguments, **tensors: Tensor | None) -> SearchArguments:
    for name, tensor in tensors.items():
        if tensor is not None:
            assert tensor.is_contiguous(), name
            setattr(given, name, tensor.data_ptr())
    return given


class BeamStep:
    """The bookkeeping of a step of a beam search on fixed buffers, which have the names of `arguments.POINTERS`."""

    def __init__(self, width: int, count: int, columns: int, *, best: int, end: int, enough: bool, margin: float | None,
                 **buffers: Tensor | None) -> None:  # fmt: skip
        self._kept = buffers
        active = buffers["active"]
        assert active is not None
        self.device, self.rows = active.device, len(active)
        given = SearchArguments(rows=self.rows, width=width, count=count, columns=columns, best=best, end=end)
        given.enough, given.margin = enough, math.inf if margin is None else margin
        self._given = _pointed(given, **buffers)

    @staticmethod
    def fits(width: int, count: int, device: torch.device) -> bool:
        """True if the kernel is for such a beam."""
        return width * count <= MOST_CONTINUATIONS and ready(device)

    def __call__(self, values: Tensor, tokens: Tensor, endings: Tensor, cover: Tensor | None) -> None:
        """Take a step with the best tokens (B·W, K) of each hypothesis, and the log-probabilities of the end (B·W,)."""
        given = self._given
        _pointed(given, values=values, best_tokens=tokens, endings=endings, cover=cover)
        how = plan.beam_step(self.rows, given.width, given.count, given.columns)
        launch.run(plan.BEAM_STEP, "beam_step", how, given, self.device)


def trace_back(chosen: Tensor, tokens: Tensor, origins: Tensor, times: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    """See `steps.trace_back`."""
    steps, rows, width = chosen.shape
    traced = torch.empty(times.numel(), steps, dtype=torch.int64, device=chosen.device)
    path = torch.empty_like(traced)
    given = SearchArguments(rows=rows, width=width, columns=tokens.shape[2], best=times.shape[1], steps=steps)
    given = _pointed(given, past_chosen=chosen, past_tokens=tokens, past_origins=origins)
    times, starts = times.contiguous(), starts.contiguous()
    _pointed(given, times=times, starts=starts, traced=traced, path=path)
    launch.run(plan.TRACE_BACK, "trace_back", plan.trace_back(times.numel()), given, chosen.device)
    return traced, path


class Draw:
    """The choice of a token for each row on fixed buffers, which have the names of `arguments.POINTERS`."""

    def __init__(
        self, temperature: float, *, end: int | None, min_tokens: int, forbidden: Tensor, **buffers: Tensor
    ) -> None:
        self._kept = forbidden, buffers
        self.device, self.rows = buffers["next"].device, len(buffers["next"])
        given = SearchArguments(rows=self.rows, end=-1 if end is None else end, min_tokens=min_tokens)
        given.forbidden_count, given.temperature = len(forbidden), temperature
        self._given = _pointed(given, forbidden=forbidden, **buffers)

    @staticmethod
    def fits(forbidden: int, dtype: torch.dtype, device: torch.device) -> bool:
        """True if the kernel is for so many forbidden tokens."""
        return forbidden <= MOST_FORBIDDEN and dtype == torch.float32 and ready(device)

    def __call__(self, log_probs: Tensor) -> None:
        """Choose by the log-probabilities (B, V)."""
        given: Any = self._given
        log_probs = log_probs if log_probs.stride(-1) == 1 else log_probs.contiguous()
        given.log_probs, given.vocabulary, given.row_stride = (
            log_probs.data_ptr(),
            log_probs.shape[1],
            log_probs.stride(0),
        )
        launch.run(plan.DRAW, "draw", plan.draw(self.rows), given, self.device)
