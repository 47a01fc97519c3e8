"""An engine is asked once for each job of a call, since asking costs time on every call."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import unrolled
from unrolled import Cell, Recurrent
from unrolled.kernels import ENGINES
from unrolled.kernels.attention import reference as attention_reference
from unrolled.kernels.attention.scan import ATTENTION_ENGINES
from unrolled.kernels.recurrence import reference
from unrolled.nn import AttentionDecoder


class Hesitant(ModuleType):
    """An engine that counts how often it is asked, and then works as another does."""

    DESCRIPTION = "asks itself first"

    def __init__(self, worker: ModuleType) -> None:
        super().__init__("hesitant")
        self.worker, self.asked = worker, 0

    def refuses(self, job: Any) -> str | None:
        self.asked += 1
        answer: str | None = self.worker.refuses(job)
        return answer

    def run(self, job: Any) -> Any:
        return self.worker.run(job)

    def run_traced(self, job: Any) -> Any:
        return self.worker.run_traced(job)


class Plain(Cell):
    """h' = tanh(x + h)."""

    def step(self, gates_x: Tensor, state: tuple[Tensor, ...]) -> tuple[Any, ...]:
        h = torch.tanh(gates_x + state[0])
        return h, (h,)


@pytest.fixture
def hesitant(monkeypatch: pytest.MonkeyPatch) -> Hesitant:
    engine = Hesitant(reference)
    monkeypatch.setitem(ENGINES, "hesitant", engine)
    return engine


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("traced", [False, True])
def test_a_layer_asks_once_for_each_run(
    hesitant: Hesitant, name: str, layers: int, bidirectional: bool, traced: bool
) -> None:
    options = {"bidirectional": bidirectional, "variational_dropout": 0.2}
    layer = getattr(unrolled, name)(3, 4, layers, backend="hesitant", **options)
    x = torch.randn(5, 2, 3)
    layer.trace(x) if traced else layer(x)
    assert hesitant.asked == layers * (2 if bidirectional else 1)


@pytest.mark.parametrize("traced", [False, True])
def test_so_does_a_layer_of_ones_own_cell(hesitant: Hesitant, traced: bool) -> None:
    layer, x = Recurrent(Plain, 4, 4, 3, backend="hesitant"), torch.randn(2, 5, 4)
    layer.trace(x) if traced else layer(x)
    assert hesitant.asked == 3


def test_auto_asks_once() -> None:
    engine, others = Hesitant(reference), dict(ENGINES)
    ENGINES.clear()
    ENGINES.update({"hesitant": engine, **others})  # it comes first
    try:
        unrolled.LSTM(3, 4)(torch.randn(5, 2, 3))
    finally:  # in their order, which decides what `auto` takes
        ENGINES.clear()
        ENGINES.update(others)
    assert engine.asked == 1


def test_an_attention_decoder_asks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Hesitant(attention_reference)
    monkeypatch.setitem(ATTENTION_ENGINES, "hesitant", engine)
    decoder = AttentionDecoder(3, 4, 5, backend="hesitant")
    decoder(torch.randn(2, 6, 3), torch.randn(2, 7, 5))
    assert engine.asked == 1
