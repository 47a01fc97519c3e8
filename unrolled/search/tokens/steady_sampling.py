"""Sampling in steps of fixed shapes: tokens are chosen on the device, and read by the host in blocks.

The host draws the random numbers of each row ahead, from the row's own generator, so that the tokens are those of
`generate`. It starts a block of steps before it reads the one before it. Rows that have ended are ignored until so many
have that a smaller batch can go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unrolled.kernels.search.cuda import engine
from unrolled.search.limits import Limits
from unrolled.search.tokens.sampling import Sampling, drawn
from unrolled.search.tokens.steady import (
    GraphCache,
    Repeated,
    StateBuffers,
    SteadyModel,
    precision_of,
    rounded_up,
    shapes_of,
)
from unrolled.search.tokens.token_model import TokenModel, checked_step, select

LARGEST = 16  # steps in a block; the first have 1, 2, 4 and 8, so that a stream begins at once
SLOTS = 4 * LARGEST  # steps whose results are kept on the device


class Block(NamedTuple):
    """The results of some steps; a token is -1 where there is none to choose."""

    tokens: NDArray[np.int64]  # (n, B)
    log_probs: NDArray[np.float64]  # (n, B)


class _Started(NamedTuple):
    """A block that the device computes, and the copies of its results on the host."""

    tokens: Tensor  # (n, B)
    log_probs: Tensor
    done: Any  # the event after the copies; None on a CPU


class SteadySampling:
    """The buffers of a batch of one size, and its step."""

    def __init__(
        self,
        model: TokenModel,
        state: Any,
        sampling: Sampling,
        limits: Limits,
        cache: GraphCache,
        device: torch.device,
        rows: int,
    ) -> None:
        self.model, self.sampling, self.end, self.min_tokens = model, sampling, limits.end, limits.min_tokens
        self.buffers = StateBuffers(state, 1)
        self.last = torch.zeros(rows, dtype=torch.int64, device=device)
        step = checked_step(model.step(self.last, self.buffers.state), rows, "step")
        self.vocabulary = step.scores.shape[-1]
        self.buffers.widen(step.state)
        self.counters = torch.zeros(2, dtype=torch.int64, device=device)
        self.slot, self.written = self.counters[:1], self.counters[1:]
        self.uniform = torch.zeros(SLOTS, rows, dtype=torch.float64, device=device)
        self.tokens = torch.zeros(SLOTS, rows, dtype=torch.int64, device=device)
        self.log_probs = torch.zeros(SLOTS, rows, dtype=step.log_probs.dtype, device=device)
        self.forbidden = torch.tensor(sorted(set(limits.forbidden)), dtype=torch.int64, device=device)
        self.seen: Tensor | None = None
        if sampling.repetition_penalty != 1:
            self.seen = torch.zeros(rows, self.vocabulary, dtype=torch.bool, device=device)
        self.kernel = self._kernel()
        self.step = Repeated(self._advance, device, cache, LARGEST)
        self.step.record()

    def _advance(self) -> None:
        step = self.model.step(self.last, self.buffers.state)
        self.buffers.follow(step.state)  # which may hold the last tokens
        if self.kernel is not None:
            self.kernel(step.log_probs)
        else:
            self._choose(step.log_probs)
        self.counters += 1

    def _choose(self, log_probs: Tensor) -> None:
        allowed = log_probs.index_fill(1, self.forbidden, -torch.inf) if len(self.forbidden) else log_probs
        if self.end is not None and self.min_tokens:
            early = torch.where(self.written < self.min_tokens, -torch.inf, allowed[:, self.end])
            allowed = torch.cat([allowed[:, : self.end], early[:, None], allowed[:, self.end + 1 :]], 1)
        uniform = self.uniform.index_select(0, self.slot)[0]
        tokens = drawn(self.sampling, allowed, self.seen, uniform)
        self.last.copy_(tokens.clamp(min=0))
        picked = log_probs.gather(1, self.last[:, None])[:, 0]
        if self.seen is not None:
            self.seen.scatter_(1, self.last[:, None], True)
        self.tokens.index_copy_(0, self.slot, tokens[None])
        self.log_probs.index_copy_(0, self.slot, picked[None])

    def _kernel(self) -> engine.Draw | None:
        """The choice of all tokens in one launch; None: it is not for these settings or this device."""
        plain = replace(self.sampling, temperature=1.0) == Sampling()
        if not plain or not engine.Draw.fits(len(self.forbidden), self.log_probs.dtype, self.last.device):
            return None
        return engine.Draw(
            self.sampling.temperature,
            end=self.end,
            min_tokens=self.min_tokens,
            forbidden=self.forbidden,
            uniform=self.uniform,
            slot=self.slot,
            written=self.written,
            drawn=self.tokens,
            picked=self.log_probs,
            next=self.last,
        )


@runtime_checkable
class WindowedSteps(Protocol):
    """A model of fixed shapes whose windows are full after `context` tokens, and have to be renewed."""

    context: int

    def positions(self, state: Any) -> list[int]:
        """The number of tokens in the window of each row."""
        ...

    def renew(self, state: Any, rows: list[int]) -> int:
        """Begin the full windows of some rows again, in place; returns the number of tokens in them then."""
        ...


class Windows:
    """The windows of a batch: the host counts their tokens, and renews those that are full."""

    def __init__(self, model: WindowedSteps, state: Any) -> None:
        self.model, self.positions = model, model.positions(state)

    def room(self, state: Any) -> int:
        """The number of steps that all windows have room for, after full ones were renewed."""
        full = [row for row, position in enumerate(self.positions) if position >= self.model.context]
        if full:
            begun = self.model.renew(state, full)
            for row in full:
                self.positions[row] = begun
        return self.model.context - max(self.positions)

    def advance(self, count: int) -> None:
        self.positions = [position + count for position in self.positions]


class SampledAhead:
    """Rows that write together, block by block; each has its own random numbers."""

    def __init__(
        self, model: SteadyModel, cache: GraphCache, sampling: Sampling, limits: Limits, randoms: Sequence[Random]
    ) -> None:
        self.cache, self.sampling, self.limits = cache, sampling, limits
        self.model, self.randoms, self.device = model, list(randoms), model.device
        self._pending: deque[_Started] = deque()
        self._next_size, self._slot = 1, 0
        self._borrowed: Any = None

    def begin(self, state: Any, steps: int, last: Sequence[int], written: int, seen: Tensor | None) -> None:
        """Go on after the tokens `last`, of which each row has written so many; `steps` more at most."""
        self.steps, self.written = steps, written
        made = self.model.steady(state, len(self.randoms), 1, steps)
        assert made is not None  # one hypothesis of each row: windows can be renewed
        self._steady, state = made
        self._enter(state, torch.tensor(list(last), device=self.device), seen)

    def _enter(self, state: Any, last: Tensor, seen: Tensor | None) -> None:
        """Put rows into the buffers of a batch that has room for them."""
        rows, model, device = len(self.randoms), self._steady, self.device
        self.size = rounded_up(rows)
        fill = torch.arange(self.size, device=device).clamp(max=rows - 1)  # the last row again and again
        state = select(state, fill)
        settings = (self.sampling, self.limits.end, self.limits.min_tokens, tuple(sorted(set(self.limits.forbidden))))
        key = (type(model).__name__, "sampling", settings, self.size, shapes_of(state), precision_of(device))

        def make() -> SteadySampling:
            return SteadySampling(model, state, self.sampling, self.limits, self.cache, device, self.size)

        self._borrowed = self.cache.borrowed(key, make)
        self.search: SteadySampling = self._borrowed.__enter__()
        self.search.step.begin()
        self.search.buffers.load(state)
        self.search.last.copy_(last[fill])
        self.search.written.fill_(self.written)
        if self.search.seen is not None and seen is not None:
            self.search.seen.copy_(seen[fill])
        self.windows = Windows(model, state) if isinstance(model, WindowedSteps) else None

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with some of the rows, after all blocks were read."""
        self.randoms = [self.randoms[row] for row in rows]
        chosen = torch.tensor(list(rows), device=self.device)
        state, last, seen = select((self.search.buffers.state, self.search.last, self.search.seen), chosen)
        self.close()
        self._enter(state, last, seen)

    def close(self) -> None:
        """Give the buffers back."""
        if self._borrowed is not None:
            self._borrowed.__exit__(None, None, None)
            self._borrowed = None

    def read(self, more: bool = True) -> Block | None:
        """The next block; others are started behind it if there may be `more`. None: no block is under way."""
        while more and self.steps > 0 and len(self._pending) < 2:
            self._start()
        if not self._pending:
            return None
        started = self._pending.popleft()
        if started.done is not None:
            started.done.synchronize()
        return Block(started.tokens.numpy(), started.log_probs.double().numpy())

    def _start(self) -> None:
        search, rows, on_gpu = self.search, len(self.randoms), self.device.type == "cuda"
        room = self.steps if self.windows is None else self.windows.room(search.buffers.state)
        count = min(self._next_size, self.steps, room)
        self._next_size = min(2 * self._next_size, LARGEST)
        first = self._slot if self._slot + count <= SLOTS else 0
        here = slice(first, first + count)
        uniform = torch.zeros(count, rows, dtype=torch.float64, pin_memory=on_gpu)
        uniform.copy_(
            torch.from_numpy(np.array([[random.random() for _ in range(count)] for random in self.randoms])).T
        )
        search.uniform[here, :rows].copy_(uniform, non_blocking=True)
        search.slot.fill_(first)
        search.step(count)
        if self.windows is not None:
            self.windows.advance(count)
        results = []
        for kept in (search.tokens, search.log_probs):
            results.append(torch.empty(count, rows, dtype=kept.dtype, pin_memory=on_gpu))
            results[-1].copy_(kept[here, :rows], non_blocking=True)
        done = None
        if on_gpu:
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch's
            done.record()
        self._pending.append(_Started(results[0], results[1], done))
        self._slot = first + count
        self.steps -= count
        self.written += count


class Whole(NamedTuple):
    """The further tokens of a row, the end token among them, and their log-probabilities."""

    row: int
    tokens: list[int]  # the last is -1 where there was none to choose
    log_probs: NDArray[np.float64]
    ended: bool  # by the end token


def read_whole(ahead: SampledAhead, most: Sequence[int], end: int | None) -> Iterator[Whole]:
    """All tokens of each row, at most so many; rows come in the order in which they end."""
    rows = np.arange(len(most))  # of the columns of a block
    left = np.array(most)
    blocks: list[Block] = []
    going = np.ones(len(rows), dtype=bool)
    done = 0
    while going.any():
        block = ahead.read(more=2 * going.sum() > ahead.size)
        if block is None:  # a smaller batch goes on
            kept = np.nonzero(going)[0]
            ahead.keep(kept.tolist())
            rows, going = rows[kept], going[kept]
            blocks = [Block(one.tokens[:, kept], one.log_probs[:, kept]) for one in blocks]
            continue
        blocks.append(block)
        last = (block.tokens == (-1 if end is None else end)) | (block.tokens < 0)  # (n, B)
        count = len(block.tokens)
        steps = np.where(last.any(0), last.argmax(0) + 1, count)
        stops = going & (last.any(0) | (done + count >= left[rows]))
        done += count
        if not stops.any():
            continue
        tokens, log_probs = (np.ascontiguousarray(np.concatenate(parts).T) for parts in zip(*blocks, strict=True))
        for column in np.nonzero(stops)[0].tolist():
            length = min(done - count + int(steps[column]), int(left[rows[column]]))
            some = tokens[column, :length].tolist()
            yield Whole(int(rows[column]), some, log_probs[column, :length], some[-1] == end)
        going &= ~stops
