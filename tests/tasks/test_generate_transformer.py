"""`generate` with model.kind=transformer: it learns, goes on, is tuned and shows its attention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.killing import KilledAt
from unrolled import Model, UserError, api
from unrolled.jobs import TrainingJob

TEXT = "\n".join(f"{a} and {b} make {a + b}" for a in range(12) for b in range(12)) + "\n"
SMALL: dict[str, Any] = {
    "model.kind": "transformer",
    "model.hidden_size": 24,
    "model.blocks": 2,
    "model.heads": 2,
    "model.dropout": 0.0,
    "train.batch_size": 8,
    "train.k1": 20,
    "train.lr": 5e-3,
}


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "book.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def model(book: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    keys = {**SMALL, "train.max_steps": 150, "model.positions": "learned"}
    return api.train("generate", train=book, out=tmp_path_factory.mktemp("runs") / "book", set=keys, quiet=True)


def test_it_learns(model: Model) -> None:
    """Far below the entropy of single characters, 2.6 nats."""
    assert model.scores["nats_per_token"] < 1.4


def test_a_stream_may_be_cut_anywhere(model: Model) -> None:
    text = TEXT[:100]
    with model.stream() as whole, model.stream() as cut:
        whole.feed(text)
        for i in range(0, 100, 7):
            cut.feed(text[i : i + 7])
        assert cut.nats == pytest.approx(whole.nats, rel=1e-5)
        assert "".join(cut.write(max_tokens=15, temperature=0)) == model.predict(text, max_tokens=15, temperature=0)


def test_a_stopped_run_ends_as_if_it_had_not_been(book: Path, tmp_path: Path) -> None:
    keys = {**SMALL, "train.max_steps": 12, "train.eval_every": 4, "model.dropout": 0.2}
    whole = api.train("generate", train=book, out=tmp_path / "whole", set=keys, quiet=True)
    config = api.configure("generate", extra={**keys, "data.train": str(book)})
    job = TrainingJob(config)
    with pytest.raises(KeyboardInterrupt):
        job.run(tmp_path / "cut", quiet=True, callbacks=[KilledAt(8)])
    resumed = api.resume(tmp_path / "cut", quiet=True)
    for a, b in zip(whole.network.parameters(), resumed.network.parameters(), strict=True):
        assert torch.equal(a, b)


def test_another_window_keeps_the_positions_of_the_model_it_starts_from(
    model: Model, book: Path, tmp_path: Path
) -> None:
    model.save(tmp_path / "old.safetensors")
    keys = {"train.max_steps": 1, "train.lr": 1e-9, "train.batch_size": 8, "train.k1": 50}
    tuned = api.train(
        "generate", train=book, out=tmp_path / "run", init=tmp_path / "old.safetensors", set=keys, quiet=True
    )
    assert tuned.config.model.context == 20  # type: ignore[attr-defined]
    assert torch.allclose(
        tuned.network.get_parameter("positions.weight"), model.network.get_parameter("positions.weight"), atol=1e-6
    )


def test_a_trace_shows_attention(model: Model, tmp_path: Path) -> None:
    trace = model.trace("3 and 4 make 7")
    (seen,) = trace.attention.values()
    assert seen.weights.shape == (2, 2, 14, 14)
    assert torch.allclose(seen.weights.sum(-1), torch.ones(2, 2, 14))
    assert seen.weights.triu(1).abs().sum() == 0
    trace.figure("attention").savefig(tmp_path / "attention.png")
    with pytest.raises(UserError, match="A Transformer has no recurrent states and no gates: look at its attention"):
        trace.figure("gates")
    with pytest.raises(UserError, match=r"30 tokens exceed the context of this Transformer, 20\. Trace a shorter"):
        model.trace("3" * 30)


def test_positions_that_are_never_learnt_are_said(book: Path, tmp_path: Path, capfd: Any) -> None:
    keys = {**SMALL, "train.max_steps": 1, "model.context": 64}
    api.train("generate", train=book, out=tmp_path / "run", set=keys)
    assert "training windows have 20 tokens and model.context=64" in capfd.readouterr().err


def test_weights_of_the_stepper_are_refused(model: Model) -> None:
    with pytest.raises(UserError, match="with a recurrent model on a CPU"):
        model.predict("3", weights="int8", max_tokens=2)
