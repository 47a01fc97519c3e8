"""One target at the end, gradients through each row's own last k2 steps: against plain torch, row by row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.tolerances import assert_close
from unrolled import UserError, api
from unrolled.data import Batch
from unrolled.jobs import TrainingJob
from unrolled.models.classifier import Classifier, ClassifierSettings
from unrolled.models.inputs import TokenInput
from unrolled.tasks.classify.config import ClassifyTraining
from unrolled.tasks.classify.task import Classify
from unrolled.tasks.contract import Training

LENGTHS = [9, 1, 4, 7, 5]
KEYS = ["model.pool=last", "model.bidirectional=false"]


def a_classifier(cell: str, **keys: Any) -> Classifier:
    settings = ClassifierSettings(
        cell=cell, hidden_size=5, num_layers=2, bidirectional=False, pool="last", dropout=0.0, ngrams=0, **keys
    )
    network = Classifier(settings, TokenInput(11, 4), 3)
    for name, parameter in network.named_parameters():
        if "initial_" in name:
            nn.init.normal_(parameter)
    return network


def by_hand(network: Classifier, ids: Tensor, target: Tensor, k2: int) -> Tensor:
    """The loss of one row with torch.nn's layer: its beginning without gradients, its last k2 steps with them."""
    ours = network.layer
    kind: Any = {"lstm": nn.LSTM, "gru": nn.GRU}[type(ours).__name__.lower()]
    theirs = kind(4, 5, num_layers=2, batch_first=True)
    weights: dict[str, Tensor] = {name: p for name, p in ours.named_parameters() if "initial_" not in name}
    state: Any = [p[:, None] for name, p in ours.named_parameters() if "initial_" in name] or None
    state = tuple(state) if state and len(state) > 1 else state[0] if state else None
    assert isinstance(network.input, TokenInput)
    embedded, cut = network.input.embedding(ids[None]), max(0, len(ids) - k2)
    if cut:
        with torch.no_grad():
            _, state = torch.func.functional_call(theirs, weights, (embedded[:, :cut], state))
    output, _ = torch.func.functional_call(theirs, weights, (embedded[:, cut:], state))
    return F.cross_entropy(network.scores(output[:, -1]), target[None])


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("k2", [1, 3, 5, 9, 20])
def test_ragged_rows_have_their_own_last_steps(k2: int, cell: str, learned: bool) -> None:
    network = a_classifier(cell, learned_state=learned)
    ids, targets = torch.randint(11, (5, 9)), torch.randint(3, (5,))
    batch = Batch(ids, targets, lengths=torch.tensor(LENGTHS))
    loss = Classify().loss(network, batch, None, Training(ClassifyTraining(k2=k2)))
    rows = [by_hand(network, ids[i, :length], targets[i], k2) for i, length in enumerate(LENGTHS)]
    assert_close(loss.sum, torch.stack(rows).sum())
    parameters = dict(network.named_parameters())
    found = torch.autograd.grad(loss.sum, list(parameters.values()), allow_unused=True)
    expected = torch.autograd.grad(torch.stack(rows).sum(), list(parameters.values()), allow_unused=True)
    for name, mine, theirs in zip(parameters, found, expected, strict=True):
        zero = torch.zeros_like(parameters[name])
        assert_close(zero if mine is None else mine, zero if theirs is None else theirs, name)


def test_long_beginnings_run_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    network, batch = a_classifier("gru"), Batch(torch.randint(11, (2, 40)), torch.tensor([0, 1]))
    losses = []
    for piece in (256, 7):
        monkeypatch.setattr("unrolled.training.tbptt.LEAST_PIECE", piece)
        losses.append(Classify().loss(network, batch, None, Training(ClassifyTraining(k2=3))).sum)
    assert_close(losses[1], losses[0])


def test_it_is_a_key_of_classify(tmp_path: Path) -> None:
    """Words with letters, n-grams and consistency too: the batch is cut in time, and what belongs to rows is not."""
    file = tmp_path / "train.tsv"
    file.write_text(
        "".join(f"{'ab'[i % 2]}\t{'one two three ' * (i % 5 + 1)}{'x' if i % 2 else 'y'}\n" for i in range(40))
    )
    small = ["model.hidden_size=8", "train.max_steps=2", "train.consistency=1.0"]
    job = TrainingJob(api.configure("classify", [*KEYS, *small, "train.k2=2"], {"data.train": str(file)}))
    trainer = job.trainer()
    assert trainer.update().loss > 0
    with pytest.raises(UserError, match=r"train.k2=2 does nothing here: it belongs to model.pool=last"):
        TrainingJob(api.configure("classify", ["train.k2=2"], {"data.train": str(file)}))
