"""Truncated backpropagation through time, for any k1 and k2.

A stream is read in chunks of k1 steps. After each chunk there is one update: the losses of its k1 steps, each counted
once, are backpropagated through at most the last k2 steps.

    k2 = k1   the usual case: each chunk is its own window; the state is carried without its history
    k2 > k1   the window reaches back into earlier chunks: it is recomputed from the state stored at its entry,
              with the current weights; only the last k1 steps' losses count
    k2 < k1   the first k1 − k2 steps run without gradient: their losses are reported but not learnt from
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from unrolled.data import Batch, join
from unrolled.errors import UserError
from unrolled.training.loss import Loss, detached

LEAST_PIECE = 256  # steps that run forward at once without gradients
LossOf = Callable[[Batch, Any], Loss]
"""Run a model over a batch from a state: the loss of its scored steps, and the state after it."""
Totals = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""The summed loss and count of a batch, of which this process has a part."""


@dataclass(frozen=True)
class Update:
    """The result of a chunk: its detached loss, the number of scored steps, and the state after it."""

    loss: torch.Tensor
    count: torch.Tensor
    state: Any


class TruncatedBPTT:
    """Turns a stream of chunks into gradients.

    `loss(batch, state)` runs the model; each call adds the gradients of one chunk to the parameters' `.grad`, scaled by
    1 / count, and returns an `Update`; the optimiser's step is the caller's. Only tensors of the last max(k1, k2) steps
    are kept, for a stream of any length.

    >>> from torch import nn
    >>> from unrolled import LSTM
    >>> layer, head = LSTM(1, 8, batch_first=True), nn.Linear(8, 1)
    >>> def loss(batch, state):
    ...     output, state = layer(batch.inputs, state)
    ...     errors = (head(output) - batch.targets).pow(2).squeeze(-1)  # (B, T)
    ...     return Loss((errors * batch.scored).sum(), batch.scored.sum(), state)
    >>> tbptt = TruncatedBPTT(loss, k2=20)
    >>> optimizer = torch.optim.Adam([*layer.parameters(), *head.parameters()])
    >>> for x in torch.randn(5, 4, 10, 1):  # five chunks of k1 = 10 steps, four rows
    ...     optimizer.zero_grad()
    ...     update = tbptt(Batch(x, x))
    ...     optimizer.step()
    """

    def __init__(self, loss: LossOf, k2: int | None = None, state: Any = None, totals: Totals | None = None) -> None:
        """`totals` where several processes share each batch."""
        if k2 is not None and k2 < 1:
            raise UserError(f"k2={k2}: backpropagation through no step.", "Expected 1 or more, or None for k2 = k1.")
        self.loss, self.k2, self.state, self.totals = loss, k2, state, totals
        self.past: deque[tuple[Batch, Any]] = deque()  # earlier chunks with the state at their entry

    def __call__(self, chunk: Batch, scale: float | torch.Tensor = 1.0) -> Update:
        """Process one chunk: add `scale` times the gradients of its mean loss."""
        k1 = chunk.inputs.shape[1]
        k2 = self.k2 or k1
        if k2 < k1:
            return self._short(chunk, k1 - k2, scale)
        return self._long(chunk, k2 - k1, scale)

    def idle(self) -> Update:
        """Take part in a batch of which this process has no row."""
        assert self.totals is not None
        loss, count = self.totals(torch.zeros(()), torch.zeros((), dtype=torch.int64))
        return Update(loss, count, self.state)

    def reset(self, state: Any = None) -> None:
        """Start a new stream: forget everything before."""
        self.state = state
        self.past.clear()

    def _short(self, chunk: Batch, silent: int, scale: float | torch.Tensor) -> Update:
        """k2 < k1: the first `silent` steps give no gradient."""
        with torch.no_grad():
            before = self.loss(chunk.steps(0, silent), self.state)
        after = self.loss(chunk.steps(silent, chunk.inputs.shape[1]), detached(before.state))
        found = self._counted((before.sum + after.sum).detach(), before.count + after.count)
        _backward(after, before.count + after.count, scale, found[1])
        self.state = detached(after.state)
        return Update(*found, self.state)

    def _long(self, chunk: Batch, back: int, scale: float | torch.Tensor) -> Update:
        """k2 ≥ k1: the window begins up to `back` steps before the chunk."""
        window, entry = self._window(chunk, back)
        loss = self.loss(window, entry)
        found = self._counted(loss.sum.detach(), loss.count)
        _backward(loss, loss.count, scale, found[1])
        if back:
            self._remember(chunk, back)
        self.state = detached(loss.state)
        return Update(*found, self.state)

    def _counted(self, loss: torch.Tensor, count: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (loss, count) if self.totals is None else self.totals(loss, count)

    def _window(self, chunk: Batch, back: int) -> tuple[Batch, Any]:
        """The window and the state at its entry."""
        if not back or not self.past:
            return chunk, self.state
        parts = [replace(past, counted=torch.zeros_like(past.mask)) for past, _ in self.past]
        joined = join([*parts, chunk])
        surplus = sum(past.inputs.shape[1] for past, _ in self.past) - back
        if surplus <= 0:
            return joined, self.past[0][1]
        with torch.no_grad():  # the window begins inside the oldest chunk: compute its entry state from that chunk's
            entry = self.loss(joined.steps(0, surplus), self.past[0][1]).state
        return joined.steps(surplus, joined.inputs.shape[1]), detached(entry)

    def _remember(self, chunk: Batch, back: int) -> None:
        self.past.append((chunk, self.state))
        while sum(past.inputs.shape[1] for past, _ in list(self.past)[1:]) >= back:
            self.past.popleft()


def _backward(loss: Loss, count: torch.Tensor, scale: float | torch.Tensor, total: torch.Tensor | None = None) -> None:
    """Add the gradients of the mean over `total` scored steps, of which this process has `count`."""
    if not loss.sum.requires_grad:
        return
    total = count if total is None else total
    mean = loss.sum / total.clamp(min=1)
    if loss.penalty is not None:
        mean = mean + (loss.penalty if total is count else loss.penalty * (count / total.clamp(min=1)))
    if not isinstance(scale, float) or scale != 1:
        mean = mean * scale
    mean.backward()  # type: ignore[no-untyped-call]


def many_to_one(loss: LossOf, batch: Batch, k2: int, state: Any = None, timed: Sequence[str] = ()) -> Loss:
    """One target at the end of a sequence (III): the whole runs forward, only the last k2 steps backward.

    Each row has its own last k2 steps. `timed` are the entries of `batch.more` with a value for each step; targets are
    those of whole rows. Returns the loss with its history; memory for gradients does not grow with T.
    """
    steps = batch.inputs.shape[1]
    lengths = batch.lengths if batch.lengths is not None else batch.mask.sum(1)
    starts = (lengths - k2).clamp(min=0)  # (B,)
    longest = int(starts.max())
    whole = starts == 0 if state is None else torch.zeros_like(starts, dtype=torch.bool)
    if not longest:
        return loss(batch, state)
    with torch.no_grad():
        for first in range(0, longest, max(k2, LEAST_PIECE)):
            piece = min(max(k2, LEAST_PIECE), longest - first)
            early = batch.window(torch.full_like(starts, first), piece, starts, timed)
            state = detached(loss(early, state).state)
    late = batch.window(starts, min(k2, steps), lengths, timed)
    if bool(whole.any()):  # rows that begin here: from their initial state
        late = replace(late, resets=whole)
    return loss(late, state)


def independent_chunks(loss: LossOf, chunks: Iterable[Batch]) -> Iterator[Update]:
    """Independent chunks (I): each starts from the initial state."""
    for chunk in chunks:
        part = loss(chunk, None)
        _backward(part, part.count, 1.0)
        yield Update(part.sum.detach(), part.count, None)
