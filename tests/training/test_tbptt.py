"""Truncated backpropagation against its definition by brute force."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests import warm
from tests.tolerances import assert_close
from unrolled import GRU, LSTM, UserError
from unrolled.data import Batch
from unrolled.training.loss import Loss
from unrolled.training.tbptt import TruncatedBPTT, independent_chunks, many_to_one

ROWS, WIDTH, HIDDEN = 2, 3, 4


class Regressor(nn.Module):
    """Predicts a vector per step; the sum of squares of what counts."""

    def __init__(self) -> None:
        super().__init__()
        self.layer: Any = LSTM(WIDTH, HIDDEN, batch_first=True, dtype=torch.float64)
        self.head = nn.Linear(HIDDEN, WIDTH, dtype=torch.float64)

    def loss(self, batch: Batch, state: Any) -> Loss:
        output, state = self.layer(batch.inputs, state, resets=batch.resets)
        errors = (self.head(output) - batch.targets).pow(2).sum(-1)  # (B, T)
        return Loss((errors * batch.scored).sum(), batch.scored.sum(), state)


def by_definition(model: Regressor, x: Tensor, y: Tensor, k1: int, k2: int, learn: bool) -> list[list[Tensor]]:
    """Step by step, with the graph cut k2 transitions before each update; plain SGD after each if `learn`."""
    total, gradients = x.shape[1], []
    entries: list[Any] = [None]  # entries[t]: the state before step t, without history
    for end in range(k1, total + 1, k1):
        begin = max(0, end - k2)
        with torch.no_grad():  # the states on the way to the window, from the last ones known
            known = len(entries) - 1
            for t in range(known, begin):
                entries.append(model.layer(x[:, t : t + 1], entries[t])[1])
        state, loss = entries[begin], x.new_zeros(())
        for t in range(begin, end):
            output, state = model.layer(x[:, t : t + 1], state)
            if t >= end - k1:
                loss = loss + (model.head(output) - y[:, t : t + 1]).pow(2).sum()
        found = list(torch.autograd.grad(loss / (ROWS * k1), list(model.parameters())))
        gradients.append(found)
        del entries[end - k1 + 1 :]
        with torch.no_grad():
            for t in range(len(entries) - 1, end - 1):
                entries.append(model.layer(x[:, t : t + 1], entries[t])[1])
            entries.append(tuple(s.detach() for s in state))
            if learn:
                for parameter, gradient in zip(model.parameters(), found, strict=True):
                    parameter.sub_(gradient, alpha=0.1)
    return gradients


def by_us(model: Regressor, x: Tensor, y: Tensor, k1: int, k2: int, learn: bool) -> list[list[Tensor]]:
    tbptt, gradients = TruncatedBPTT(model.loss, k2=k2), []
    for start in range(0, x.shape[1] // k1 * k1, k1):
        model.zero_grad()
        tbptt(Batch(x[:, start : start + k1], y[:, start : start + k1]))
        found = [p.grad for p in model.parameters() if p.grad is not None]
        gradients.append([g.clone() for g in found])
        with torch.no_grad():
            for parameter in model.parameters():
                if learn and parameter.grad is not None:
                    parameter.sub_(parameter.grad, alpha=0.1)
    return gradients


@pytest.mark.parametrize("k2", [1, 2, 3, 4, 5, 7, 12, 20])
@pytest.mark.parametrize("k1", [1, 2, 3, 5])
def test_gradients_equal_the_definition(k1: int, k2: int) -> None:
    """Every (k1, k2) of a grid, T = 12, frozen weights: each update's gradient."""
    model = Regressor()
    x, y = torch.randn(2, ROWS, 12, WIDTH, dtype=torch.float64)
    for ours, expected in zip(
        by_us(model, x, y, k1, k2, learn=False), by_definition(model, x, y, k1, k2, learn=False), strict=True
    ):
        for a, e in zip(ours, expected, strict=True):
            assert_close(a, e)


@pytest.mark.parametrize(("k1", "k2"), [(3, 3), (4, 2), (1, 1), (2, 1)])
def test_with_updates_between(k1: int, k2: int) -> None:
    """The same while learning, where no window reaches into an earlier chunk."""
    torch.manual_seed(1)
    model, twin = Regressor(), Regressor()
    twin.load_state_dict(model.state_dict())
    x, y = torch.randn(2, ROWS, 12, WIDTH, dtype=torch.float64)
    by_us(model, x, y, k1, k2, learn=True)
    by_definition(twin, x, y, k1, k2, learn=True)
    for a, e in zip(model.parameters(), twin.parameters(), strict=True):
        assert_close(a, e)


def test_a_window_as_long_as_the_stream_is_full_backpropagation() -> None:
    """k1 = 1, k2 = T: the last update is the last loss's full gradient."""
    model = Regressor()
    x, y = torch.randn(2, ROWS, 6, WIDTH, dtype=torch.float64)
    last = by_us(model, x, y, 1, 6, learn=False)[-1]
    output, _ = model.layer(x)
    loss = (model.head(output[:, -1]) - y[:, -1]).pow(2).sum() / ROWS
    for a, e in zip(last, torch.autograd.grad(loss, list(model.parameters())), strict=True):
        assert_close(a, e)


def test_every_loss_is_counted_once() -> None:
    model = Regressor()
    x, y = torch.randn(2, ROWS, 12, WIDTH, dtype=torch.float64)
    with torch.no_grad():
        whole = model.loss(Batch(x, y), None)
    for k1, k2 in ((3, 3), (3, 1), (3, 8), (4, 12)):
        tbptt = TruncatedBPTT(model.loss, k2=k2)
        updates = [tbptt(Batch(x[:, s : s + k1], y[:, s : s + k1])) for s in range(0, 12, k1)]
        assert_close(torch.stack([u.loss for u in updates]).sum(), whole.sum)
        assert sum(int(u.count) for u in updates) == int(whole.count)


def test_a_reset_forgets_the_past() -> None:
    model = Regressor()
    x, y = torch.randn(2, ROWS, 6, WIDTH, dtype=torch.float64)
    tbptt = TruncatedBPTT(model.loss, k2=6)
    tbptt(Batch(x[:, :3], y[:, :3]))
    tbptt.reset()
    update = tbptt(Batch(x[:, 3:], y[:, 3:]))
    assert_close(update.loss, model.loss(Batch(x[:, 3:], y[:, 3:]), None).sum)


def test_resets_inside_a_window_stop_the_gradient() -> None:
    """A document that begins in the second chunk: the first chunk's inputs have no say."""
    model = Regressor()
    x, y = torch.randn(2, ROWS, 6, WIDTH, dtype=torch.float64)
    x.requires_grad_()
    tbptt = TruncatedBPTT(model.loss, k2=6)
    tbptt(Batch(x[:, :3], y[:, :3]))
    x.grad = None
    tbptt(Batch(x[:, 3:], y[:, 3:], resets=torch.ones(ROWS, dtype=torch.bool)))
    assert x.grad is not None
    assert x.grad[:, :3].abs().sum() == 0
    assert x.grad[:, 3:].abs().sum() > 0


@pytest.mark.parametrize("k2", [1, 4, 9, 30])
def test_many_to_one(k2: int) -> None:
    layer: Any = GRU(WIDTH, HIDDEN, batch_first=True, dtype=torch.float64)
    x = torch.randn(ROWS, 9, WIDTH, dtype=torch.float64)

    def last(batch: Batch, state: Any) -> Loss:
        output, state = layer(batch.inputs, state)
        return Loss(output[:, -1].pow(2).sum(), torch.tensor(ROWS), state)

    found = torch.autograd.grad(many_to_one(last, Batch(x, x), k2).sum, list(layer.parameters()))
    cut = max(0, 9 - k2)
    entry = layer(x[:, :cut])[1].detach() if cut else None
    expected = torch.autograd.grad(layer(x[:, cut:], entry)[0][:, -1].pow(2).sum(), list(layer.parameters()))
    for a, e in zip(found, expected, strict=True):
        assert_close(a, e)


def test_independent_chunks_carry_nothing() -> None:
    model = Regressor()
    x, y = torch.randn(2, ROWS, 6, WIDTH, dtype=torch.float64)
    chunks = [Batch(x[:, :3], y[:, :3]), Batch(x[:, 3:], y[:, 3:])]
    updates = list(independent_chunks(model.loss, chunks))
    for update, chunk in zip(updates, chunks, strict=True):
        assert_close(update.loss, model.loss(chunk, None).sum)


def test_memory_does_not_grow_with_the_stream() -> None:
    """The states of 2,000,000 steps alone are 256,000 kilobytes; a process of its own stays as small as it was."""
    done = warm.python("-c", STREAM, check=True)
    assert int(done.stdout) < 50_000


STREAM = """
import ctypes, resource, torch
from unrolled import GRU
from unrolled.data import Batch
from unrolled.training.loss import Loss
from unrolled.training.tbptt import TruncatedBPTT

ctypes.CDLL(None).mallopt(-3, 1 << 20)  # M_MMAP_THRESHOLD: a freed tensor leaves the process at once
layer = GRU(1, 32, batch_first=True)

def loss(batch, state):
    output, state = layer(batch.inputs, state)
    return Loss((output.mean(-1, keepdim=True) - batch.targets).pow(2).sum(), batch.scored.sum(), state)

def peak(number):
    tbptt = TruncatedBPTT(loss, k2=500)
    for _ in range(number):
        x = torch.randn(100, 500, 1)
        assert torch.isfinite(tbptt(Batch(x, x)).loss)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

before = peak(5)
print(peak(40) - before)
"""


def test_no_step_is_refused() -> None:
    with pytest.raises(UserError) as error:
        TruncatedBPTT(Regressor().loss, k2=0)
    assert str(error.value) == "k2=0: backpropagation through no step. Expected 1 or more, or None for k2 = k1."
