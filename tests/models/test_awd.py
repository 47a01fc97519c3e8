"""AWD-LSTM: masks that hold for all steps, penalties, chunks that vary, the mean of weights since scores stalled."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.killing import KilledAt
from tests.tolerances import assert_close
from unrolled import UserError, api
from unrolled.data import ContiguousWindows
from unrolled.jobs import TrainingJob
from unrolled.models import LanguageModelSettings, RecurrentLM, language_model, stepper_for
from unrolled.models.chain import Chain, dropped, dropped_words
from unrolled.training.average import StalledMean

V = 30
AWD: dict[str, Any] = {
    "hidden_size": 11,
    "num_layers": 3,
    "last_size": 6,
    "embedding_size": 6,
    "tied": True,
    "same_mask": True,
    "dropout": 0.4,
    "input_dropout": 0.65,
    "between_dropout": 0.3,
    "word_dropout": 0.1,
    "dropconnect": 0.5,
    "activation_penalty": 2.0,
    "change_penalty": 1.0,
}
TEXT = "\n".join(f"{a} and {b} make {a + b}" for a in range(12) for b in range(12)) + "\n"
TRAIN: dict[str, Any] = {
    **{f"model.{name}": value for name, value in AWD.items()},
    "train.batch_size": 8,
    "train.k1": 20,
    "train.vary_k1": True,
    "train.optimizer": "sgd",
    "train.lr": 3.0,
    "train.schedule": "constant",
    "train.warmup_steps": 0,
    "train.clip_norm": 0.25,
    "train.average_stalled": 1,
    "train.max_steps": 12,
    "train.eval_every": 2,
}


def made(**changes: Any) -> RecurrentLM:
    network = language_model(LanguageModelSettings(**{**AWD, **changes}), V, 0)
    assert isinstance(network, RecurrentLM)
    return network


@torch.no_grad()
def test_without_dropout_it_is_torchs_layers_on_top_of_each_other() -> None:
    network = made().eval()
    assert isinstance(network.layer, Chain)
    ids = torch.randint(V, (2, 9))
    x = network.embedding(ids)
    for layer in network.layer.each():
        theirs = nn.LSTM(layer.input_size, layer.hidden_size, batch_first=True)
        theirs.load_state_dict(layer.state_dict())
        x, _ = theirs(x)
    scores, state = network(ids)
    assert_close(scores, nn.functional.linear(x, network.embedding.weight, network.scores.bias))
    assert [tuple(s.shape) for s in state] == [(2, 1, 11)] * 4 + [(2, 1, 6)] * 2


@torch.no_grad()
def test_it_is_written_with_step_by_step_and_traced() -> None:
    network = made().eval()
    ids = torch.randint(V, (2, 9))
    whole, _ = network(ids)
    steps, state = stepper_for(network, 2), None
    for t in range(9):
        step = steps.step(ids[:, t], state)
        state = step.state
        assert_close(step.scores, whole[:, t].log_softmax(-1), f"step {t}")
    traced, trace = network.trace(ids)
    assert_close(traced, whole)
    assert list(trace.scans) == ["l0", "l1", "l2"]


def test_a_mask_holds_for_all_steps_of_a_row() -> None:
    seen = dropped(torch.ones(2, 50, 400), 0.25, True, training=True)
    assert torch.equal(seen, seen[:, :1].expand_as(seen))
    assert not torch.equal(seen[0], seen[1])
    assert (seen == 0).float().mean().item() == pytest.approx(0.25, abs=0.1)
    assert seen.max().item() == pytest.approx(1 / 0.75)
    every = dropped(torch.ones(2, 50, 400), 0.25, False, training=True)
    assert not torch.equal(every, every[:, :1].expand_as(every))


def test_a_dropped_word_is_dropped_everywhere() -> None:
    ids = torch.randint(V, (8, 200))
    seen = dropped_words(torch.ones(8, 200, 5), ids, V, 0.5, training=True)
    for word in range(V):
        values = seen[ids == word]
        assert torch.equal(values, values[:1].expand_as(values))
    assert set(seen.flatten().tolist()) == {0.0, 2.0}


def test_penalties_are_the_papers() -> None:
    """α · mean of squares after dropout, β · mean of squared changes before it; reported losses are without them."""
    network = made().train()
    torch.manual_seed(5)
    read = network.read(torch.randint(V, (2, 7)))
    expected = 2.0 * (read.features**2).mean() + 1.0 * ((read.output[:, 1:] - read.output[:, :-1]) ** 2).mean()
    assert_close(network.penalty(read), expected)
    assert not torch.equal(read.features, read.output)
    one = network.read(torch.randint(V, (2, 1)))
    assert_close(network.penalty(one), 2.0 * (one.features**2).mean())


def test_a_penalty_shrinks_what_it_punishes(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(TEXT)
    plain = {k: v for k, v in TRAIN.items() if "drop" not in k} | {"train.max_steps": 60, "train.eval_every": 60}
    sizes = {}
    for alpha in (0.0, 20.0):
        keys = {**plain, "model.dropout": 0.0, "model.activation_penalty": alpha, "model.change_penalty": 0.0}
        out = tmp_path / f"{alpha}"
        model = api.train("generate", train=tmp_path / "book.txt", out=out, set=keys, quiet=True)
        network = model.network
        assert isinstance(network, RecurrentLM)
        with torch.no_grad():
            sizes[alpha] = network.read(torch.from_numpy(model.assets.ids(TEXT[:100]).astype("int64"))[None]).output
    assert sizes[20.0].square().mean() < 0.5 * sizes[0.0].square().mean()


@pytest.mark.parametrize(("length", "steps"), [(5000, 70), (100, 3), (7, 70), (40, 1)])
def test_chunks_vary_and_hold_every_token_once(length: int, steps: int) -> None:
    stream = ContiguousWindows(np.arange(2 * length) % V, rows=2, steps=steps, start=0, whole=False, seed=3)
    counts, lengths = [], []
    for epoch in range(3):
        stream.order(epoch)
        targets = [stream[i].targets for i in range(len(stream))]
        assert torch.equal(torch.cat(targets, dim=1), torch.arange(2 * length).view(2, length) % V)
        counts.append(len(stream))
        lengths.append([part.shape[1] for part in targets])
    assert len(set(counts)) == 1
    if (length, steps) == (5000, 70):
        assert lengths[0] != lengths[1]
        assert 60 < float(np.median(lengths[0])) < 80
        assert np.std(lengths[0]) > 3


def test_the_learning_rate_follows_the_chunk(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(TEXT)
    config = api.configure("generate", extra={**TRAIN, "data.train": str(tmp_path / "book.txt")})
    trainer = TrainingJob(config).trainer()
    for _ in range(6):
        info = trainer.update()
        assert info.lr == pytest.approx(3.0 * info.tokens / (8 * 20))


def test_the_mean_is_that_of_torchs_asgd() -> None:
    """torch's own averaging leaves out its first update; ours begins there."""
    torch.manual_seed(0)
    layer, x = nn.Linear(3, 2), torch.randn(9, 5, 3)
    optimizer = torch.optim.ASGD(layer.parameters(), lr=0.1, lambd=0.0, t0=0.0)
    mean = StalledMean(layer, patience=1)

    def better(a: float, b: float | None) -> bool:
        return b is None or a < b

    for number, batch in enumerate(x):
        optimizer.zero_grad()
        layer(batch).square().sum().backward()
        optimizer.step()
        mean.update(number)
        if number == 0:
            for score in (1.0, 2.0, 3.0):
                mean.judged(score, better)
    expected: list[Tensor] = [optimizer.state[p]["ax"].clone() for p in layer.parameters()]
    with mean.in_place():
        for parameter, right in zip(layer.parameters(), expected, strict=True):
            assert_close(parameter.data, right)


@pytest.mark.parametrize(
    ("scores", "begins"),
    [([5, 4, 3, 2, 1], None), ([5, 4, 4.5, 4.4, 4.3, 4.2], 5), ([3, 4, 5, 6, 1], None), ([3, 4, 5, 6, 3.5], 4)],
)
def test_it_begins_when_scores_have_stalled(scores: list[float], begins: int | None) -> None:
    """Patience 3: no better than the best of all but the last three before."""
    mean = StalledMean(nn.Linear(1, 1), patience=3)
    begun = None
    for number, score in enumerate(scores):
        mean.judged(score, lambda a, b: b is None or a < b)
        if begun is None and len(mean.means) > 2:
            begun = number
    assert begun == begins


def test_a_stopped_run_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(TEXT)
    keys = {**TRAIN, "data.train": str(tmp_path / "book.txt"), "train.lr": 30.0, "train.clip_norm": 1.0}
    whole = TrainingJob(api.configure("generate", extra=keys)).run(tmp_path / "whole", quiet=True)
    job = TrainingJob(api.configure("generate", extra=keys))
    with pytest.raises(KeyboardInterrupt):
        job.run(tmp_path / "cut", quiet=True, callbacks=[KilledAt(10)])
    resumed = api.resume(tmp_path / "cut", quiet=True)
    for a, b in zip(whole.network.parameters(), resumed.network.parameters(), strict=True):
        assert torch.equal(a, b)
    rows = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("whole", "cut")]
    assert rows[0] == rows[1]


def test_mistakes() -> None:
    with pytest.raises(UserError, match=r"needs embeddings as wide as the last layer: 8 and 6\. Use model.embedding_s"):
        made(embedding_size=8)
    problem = "model.combine=mean does not work with model.last_size, same_mask or between_dropout."
    with pytest.raises(UserError, match=f"^{re.escape(problem)} Use model.combine=last.$"):
        made(combine="mean")
