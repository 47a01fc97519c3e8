"""`train.consistency`: every example twice, and what the two passes differ by, as torch computes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.tasks import recognition
from tests.tasks.caption import conftest as caption_examples
from tests.tasks.translate import conftest as translate_examples
from unrolled import Model, UserError, api
from unrolled.data import Batch
from unrolled.tasks import TASKS
from unrolled.tasks.contract import Training
from unrolled.training import Loss

WEIGHT = 0.7
DROPPED: dict[str, dict[str, Any]] = {
    "classify": {"model.dropout": 0.4, "model.hidden_size": 12, "model.embedding_size": 10, "model.ngrams": 256},
    "classify labels": {"model.dropout": 0.4, "model.hidden_size": 12, "model.embedding_size": 10, "model.wide": "off"},
    "translate": {**translate_examples.SMALL, "model.encoder.dropout": 0.4, "model.decoder.dropout": 0.4},
    "recognize": {**recognition.SMALL, "model.dropout": 0.4},
    "caption": {**caption_examples.SMALL, "model.encoder.dropout": 0.4, "model.decoder.dropout": 0.4},
}


def data(kind: str, folder: Path) -> dict[str, Any]:
    path = folder / "train.tsv"
    if kind == "caption":
        table = caption_examples.write(folder / "pictures")
        return {"data.train": str(table), "data.images": str(table.parent / "images")}
    if kind == "recognize":
        return {"data.train": str(recognition.write_frames(folder / "train.npz", recognition.words(40)))}
    if kind == "translate":
        path.write_text("".join(f"{source}\t{target}\n" for source, target in translate_examples.numbers()))
    else:
        path.write_text("good\tone fine day\nbad\ta poor show\ngood,bad\tfine and poor\n" * 10)
    return {"data.train": str(path), **({"data.multi_label": True} if kind == "classify labels" else {})}


@pytest.fixture(params=list(DROPPED))
def made(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Model, Batch, Batch]:
    """A task's model that has not learnt, and a training batch with consistency and without."""
    kind: str = request.param
    name = kind.split()[0]
    task, batches = TASKS[name](), []
    files = data(kind, tmp_path)
    for weight in (WEIGHT, 0.0):
        changes: dict[str, Any] = {**DROPPED[kind], **files, "train.consistency": weight}
        config: Any = api.configure(name, [], changes)
        read = task.read(config)
        assets = task.make_assets(config, read)
        batches.append(task.batches(config, assets, read.train, training=True)[0])
    torch.manual_seed(0)
    network = task.build(config, assets)
    task.initialize(network, config, assets, read)
    return kind, Model(task, config, assets, network, {}, {}), batches[0], batches[1]


def distributions(kind: str, network: Any, batch: Batch) -> Tensor:
    """log P of what is scored, (2 N, V); of labels that are each true or not, of both answers, (2 N, V, 2)."""
    if kind == "classify":
        scored: Tensor = network(batch).log_softmax(-1)
        return scored
    if kind == "classify labels":
        scores = network(batch)
        return torch.stack([F.logsigmoid(scores), F.logsigmoid(-scores)], -1)
    if kind == "recognize":
        log_probs: Tensor
        log_probs, lengths = network(batch)
        return log_probs[torch.arange(log_probs.shape[1]) < lengths[:, None]]
    return translate_examples.real_scores(network, batch)[0].log_softmax(-1)


def loss_of(model: Model, batch: Batch, weight: float) -> Loss:
    config: Any = model.config
    settings = config.train.model_copy(update={"consistency": weight})
    return TASKS[model.task.name]().loss(model.network, batch, None, Training(settings))


def test_the_penalty_is_torchs_divergence_both_ways(made: tuple[str, Model, Batch, Batch]) -> None:
    kind, model, batch, _ = made
    network = model.network.train()
    torch.manual_seed(1)
    loss = loss_of(model, batch, WEIGHT)
    torch.manual_seed(1)
    first, second = distributions(kind, network, batch).detach().chunk(2)
    there, back = (F.kl_div(*ways, reduction="sum", log_target=True) for ways in ((first, second), (second, first)))
    wanted = WEIGHT * (there + back) / loss.count
    assert loss.penalty is not None
    assert float(wanted) > 1e-4
    torch.testing.assert_close(loss.penalty.detach(), wanted, rtol=1e-4, atol=1e-7)


def test_without_dropout_two_passes_agree_and_the_loss_is_as_it_was(made: tuple[str, Model, Batch, Batch]) -> None:
    _, model, twice, once = made
    model.network.eval()
    assert len(twice.inputs) == 2 * len(once.inputs)
    loss, plain = loss_of(model, twice, WEIGHT), loss_of(model, once, 0.0)
    assert loss.penalty is not None
    assert abs(float(loss.penalty.detach())) < 1e-9
    assert plain.penalty is None
    torch.testing.assert_close(loss.sum / loss.count, plain.sum / plain.count, rtol=1e-5, atol=1e-6)


def test_it_is_only_in_training(made: tuple[str, Model, Batch, Batch]) -> None:
    _, model, *_ = made
    config: Any = model.config
    config = config.model_copy(update={"train": config.train.model_copy(update={"consistency": WEIGHT})})
    task, read = TASKS[model.task.name](), model.task.read(config)
    batch = task.batches(config, model.assets, read.valid, training=False)[0]
    model.network.eval()
    assert task.loss(model.network, batch, None).penalty is None


def test_a_weight_below_zero_is_refused() -> None:
    with pytest.raises(UserError, match=r"train\.consistency"):
        api.configure("classify", ["train.consistency=-1"])
