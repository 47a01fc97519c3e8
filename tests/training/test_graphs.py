"""Updates that cannot be recorded, with stand-ins for CUDA: they run without a graph and say why, or are an error."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from unrolled.data import Batch
from unrolled.errors import UserError
from unrolled.training import graphs
from unrolled.training.graphs import Chunk, GraphChoice, UpdateGraphs, about_graphs

REFUSED = "operation not permitted when stream is capturing"
FULL = "CUDA out of memory. Tried to allocate 2.00 GiB."


class RefusingGraph:
    """A CUDA graph whose recording fails at its end."""

    error: Exception = RuntimeError(f"{REFUSED}\nmore lines")

    def capture_begin(self, **_: Any) -> None: ...

    def capture_end(self) -> None:
        raise self.error


def updates(monkeypatch: pytest.MonkeyPatch, mode: Any, error: Exception, reason: str | None = None) -> UpdateGraphs:
    monkeypatch.setattr(RefusingGraph, "error", error)
    for name in ("graph_pool_handle", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: None)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", RefusingGraph)
    monkeypatch.setattr(UpdateGraphs, "aside", lambda self: nullcontext())
    monkeypatch.setattr(graphs, "_waits", lambda: nullcontext([]))
    monkeypatch.setattr(UpdateGraphs, "_recover", lambda self, device: None)
    stream: Any = SimpleNamespace(device=torch.device("cpu"))
    tbptt: Any = SimpleNamespace(state=None)
    return UpdateGraphs(summed, nn.Linear(2, 2), tbptt, stream, GraphChoice(mode, reason))


def summed(chunks: Any) -> Tensor:
    return torch.stack([chunk.batch.inputs.sum() for chunk in chunks]).sum()


def chunk(value: float) -> list[Chunk]:
    return [Chunk(Batch(torch.full((2, 3), value), torch.zeros(2)), fresh=True)]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError(f"{REFUSED}\nmore"), REFUSED),
        (torch.OutOfMemoryError(f"{FULL}\nmore"), f"{FULL} Smaller batches leave room for graphs."),
    ],
)
def test_an_update_that_cannot_be_recorded_runs_without(
    monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    made = updates(monkeypatch, "auto", error)
    assert [float(made.run(chunk(value))) for value in (1.0, 2.0, 3.0)] == [6.0, 12.0, 18.0]
    assert made.reason == reason
    assert made.count == 0
    assert made.tbptt.state is None


def test_too_many_graphs_for_the_memory_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates without graphs need the memory that those of other shapes hold."""
    made = updates(monkeypatch, "auto", torch.OutOfMemoryError(FULL))
    other: Any = SimpleNamespace()
    made._recorded["other shapes"] = other
    for value in (1.0, 2.0):
        made.run(chunk(value))
    assert made.count == 0
    assert made._pool is None


def test_with_graph_on_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    made = updates(monkeypatch, "on", RuntimeError(REFUSED))
    made.run(chunk(1.0))  # as usual: the second of a set of shapes is recorded
    with pytest.raises(UserError) as error:
        made.run(chunk(1.0))
    assert str(error.value) == (
        f"train.graph=on, but the update cannot be recorded in a CUDA graph: {REFUSED}. "
        "Use train.graph=auto, which runs it without one."
    )


def test_a_reason_that_is_known_before_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"in a CUDA graph: train\.k2=9 reaches back\. Use train\.graph=auto"):
        updates(monkeypatch, "on", RuntimeError(REFUSED), "train.k2=9 reaches back")
    assert updates(monkeypatch, "auto", RuntimeError(REFUSED), "train.k2=9 reaches back").reason is not None


def test_the_doctor_says_how_updates_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert about_graphs(torch.device("cuda")).startswith("in CUDA graphs by default; ")
    monkeypatch.setattr(torch.version, "cuda", None)
    assert about_graphs(torch.device("cpu")) == "without CUDA graphs: this torch is built without CUDA"
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert about_graphs(torch.device("cpu")) == "without CUDA graphs: torch finds no GPU"
