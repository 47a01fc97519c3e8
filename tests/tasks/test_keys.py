"""Every key of every model: it changes the network or its loss, or it is refused as belonging to another model."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from unrolled.config import Section, apply, keys
from unrolled.config.applies import applies, check_keys
from unrolled.config.describe import Key
from unrolled.errors import UserError
from unrolled.tasks import TASKS, Task
from unrolled.tasks.contract import Training
from unrolled.tasks.corpus import Corpus

WIDTHS = {"hidden_size": 8, "embedding_size": 6, "feedforward": 6, "heads": 2, "letter_size": 3, "letter_hidden": 2}
LIFE = "the cat sat on the mat and the dog lay on the rug\n" * 20
ELSEWHERE = {  # keys that act when answers are found, not in the loss of the first batch
    *("tag: model.legal", "caption: model.decoder.expected", "classify: model.wide"),
    *("translate: model.shared", "forecast: model.residual"),
}


@dataclass(frozen=True)
class Kind:
    """A kind of model: the task, its files, and the keys that make it this kind."""

    task: str
    changes: dict[str, Any]


KINDS = {
    "generate, lstm": Kind("generate", {"model.num_layers": 2}),
    "generate, gru": Kind("generate", {"model.cell": "gru"}),
    "generate, rnn": Kind("generate", {"model.cell": "rnn"}),
    "generate, transformer": Kind("generate", {"model.kind": "transformer"}),
    "generate, feedforward": Kind("generate", {"model.kind": "feedforward"}),
    "classify, words": Kind("classify", {"data.level": "word", "model.wide": "off"}),
    "classify, characters": Kind("classify", {"data.level": "char", "model.cell": "gru", "model.wide": "off"}),
    "classify, frames": Kind("classify", {"data.train": "frames.npz"}),
    "classify, transformer": Kind("classify", {"data.level": "char", "model.kind": "transformer", "model.wide": "off"}),
    "tag, words": Kind("tag", {}),
    "tag, transformer": Kind("tag", {"model.kind": "transformer"}),
    "tag, spans": Kind("tag", {"data.train": "spans.txt", "model.num_layers": 2}),
    "translate, attention": Kind("translate", {"model.decoder.num_layers": 2}),
    "translate, no attention": Kind("translate", {"model.decoder.attention": "none", "model.encoder.cell": "gru"}),
    "translate, several heads": Kind("translate", {"model.decoder.score": "multihead", "model.decoder.cell": "rnn"}),
    "translate, transformer": Kind("translate", {"model.kind": "transformer"}),
    "translate, stepwise": Kind("translate", {"model.kind": "stepwise", "model.encoder.bidirectional": False}),
    "recognize, frames": Kind("recognize", {"data.train": "texts.npz"}),
    "recognize, transformer": Kind("recognize", {"data.train": "texts.npz", "model.kind": "transformer"}),
    "caption, soft": Kind("caption", {"data.size": 8}),
    "caption, none": Kind("caption", {"data.size": 8, "model.decoder.attention": "none"}),
    "caption, transformer": Kind("caption", {"data.size": 8, "model.kind": "transformer"}),
    "forecast": Kind("forecast", {}),
    "forecast, transformer": Kind("forecast", {"model.kind": "transformer", "train.window": 150}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small files for every task."""
    place: Path = tmp_path_factory.mktemp("keys")
    random = np.random.default_rng(0)
    lines = [f"{line} {chr(97 + i)}" for i, line in enumerate(LIFE.splitlines())]
    (place / "generate.txt").write_text(LIFE)
    (place / "classify.tsv").write_text("".join(f"{i % 2}\t{line} {i}\n" for i, line in enumerate(lines)))
    tagged = "".join("".join(f"{w} {w[0].upper()}\n" for w in line.split()) + "\n" for line in lines)
    (place / "tag.txt").write_text(tagged)
    (place / "spans.txt").write_text(tagged.replace(" T\n", " B-X\n").replace(" C\n", " I-X\n").replace(" D", " O"))
    (place / "translate.tsv").write_text("".join(f"{line}\t{line[::-1]}\n" for line in lines))
    (place / "forecast.csv").write_text("a,b\n" + "".join(f"{x:.3f},{y:.3f}\n" for x, y in random.random((300, 2))))
    shape: dict[str, Any] = {"frames": random.random((40, 3), dtype=np.float32), "lengths": np.array([10] * 4)}
    np.savez(place / "frames.npz", labels=np.array(["a", "b"] * 2), **shape)
    np.savez(place / "texts.npz", texts=np.array(["ab", "ba"] * 2), **shape)
    return place


@dataclass(frozen=True)
class Case:
    """A kind of model with its data read."""

    task: Task
    config: Any
    assets: Any
    examples: Any

    def mark(self, config: Any) -> list[Any]:
        """Everything that a key of the model section can change: weights, and the loss of a batch in training."""
        torch.manual_seed(0)
        network = self.task.build(config, self.assets).train()
        weights = [(tuple(p.shape), p.requires_grad) for p in network.parameters()]
        batch = self.task.batches(config, self.assets, self.examples, training=True)[0]
        torch.manual_seed(1)
        loss = self.task.loss(network, batch, None, Training(config.train))
        return [weights, float(loss.sum.detach()), loss.penalty is not None]


@functools.cache
def a_case(name: str, folder: Path) -> Case:
    kind = KINDS[name]
    task = TASKS[kind.task]()
    file = {"generate": "generate.txt", "tag": "tag.txt", "forecast": "forecast.csv"}.get(kind.task, f"{kind.task}.tsv")
    given = {"data.train": None if kind.task == "caption" else file} | kind.changes
    if given["data.train"]:
        given["data.train"] = str(folder / given["data.train"])
    config = task.config_class()
    known = keys(type(config))
    widths = {path: WIDTHS[end] for path in known if (end := path.rpartition(".")[2]) in WIDTHS and "model." in path}
    config = apply(config, {**widths, "train.batch_size": 4, **given})
    data = task.read(config)
    torch.manual_seed(0)
    assets = task.make_assets(config, data)
    return Case(task, config, assets, Corpus(data.train[:8]) if isinstance(data.train, list) else data.train)


def another(key: Key, value: Any) -> Any:
    """A value of a key that it does not have now."""
    special = {
        "init": "orthogonal",
        "nonlinearity": "relu",
        "pool": "mean",
        "proj_size": 3,
        "heads": 4,
        "strides": [1, 1],
    }
    special |= {
        "cell_activation": "relu",
        "gate_activation": "hardsigmoid",
        "output_activation": "relu",
        "front": [5],
        "wide_letters": [],
    }
    special |= {
        "combine": "mean",
        "bridge": "zero",
        "grid": 2,
        "word_dropout": 0.9,
        "channels": [4, 6],
        "lags": 3,
        "loss": "mae",
        "quantiles": [0.5],
        "residual": False,
        "changes": False,
    }
    name = key.path.rpartition(".")[2]
    if name in special:
        return special[name]
    if key.choices:
        return next(choice for choice in key.choices[::-1] if choice not in (value, "auto"))
    if isinstance(value, bool):
        return not value
    if float in key.kinds:
        return 0.25 if value != 0.25 else 0.5
    return 4 if value is None else value + 2


@pytest.mark.parametrize("name", KINDS)
def test_a_key_does_something_or_is_refused(name: str, folder: Path) -> None:
    case = a_case(name, folder)
    facts, usual = case.task.facts(case.config, case.assets), case.mark(case.config)
    wrong = []
    for path, key in keys(type(case.config)).items():
        if not path.startswith("model.") or f"{case.task.name}: {path}" in ELSEWHERE:
            continue
        try:
            changed = apply(case.config, {path: another(key, _value(case.config, path))})
            effect = case.mark(changed) != usual
        except UserError:
            continue  # refused anyway, with its own reason
        if effect != applies(changed, path, facts):
            wrong.append(f"{path} has {'an' if effect else 'no'} effect")
    assert not wrong


def _value(config: Section, path: str) -> Any:
    for name in path.split("."):
        config = getattr(config, name)
    return config


@pytest.mark.parametrize(
    ("task", "changes", "message"),
    [
        ("generate", {"model.activation": "relu"}, "model.activation='relu' does nothing here: it belongs to "
         "model.kind=transformer, and model.kind is recurrent. Leave it out."),
        ("generate", {"model.kind": "transformer", "model.peephole": "current"},
         "model.peephole='current' does nothing here: it belongs to model.kind=recurrent, "
         "and model.kind is transformer. Leave it out."),
        ("tag", {"model.cell": "gru", "model.peephole": "current"}, "model.peephole='current' does nothing here: "
         "it belongs to model.cell=lstm, and model.cell is gru. Leave it out."),
        ("translate", {"model.decoder.attention": "none", "model.decoder.heads": 2},
         "model.decoder.heads=2 does nothing here: it belongs to model.kind=transformer, or to "
         "model.decoder.score=multihead, and model.kind is recurrent and model.decoder.score is general. "
         "Leave it out."),
        ("translate", {"model.decoder.learned_state": True}, "model.decoder.learned_state=true does nothing here: "
         "it belongs to model.decoder.bridge=zero, and model.decoder.bridge is auto. Leave it out."),
        ("forecast", {"train.momentum": 0.9}, "train.momentum=0.9 does nothing here: it belongs to train.optimizer=sgd "
         "or rmsprop, and train.optimizer is adamw. Leave it out."),
        ("caption", {"train.reinforce": 0.5, "model.kind": "transformer"}, "train.reinforce=0.5 does nothing here: "
         "it belongs to model.decoder.attention=hard, and model.decoder.attention is auto. Leave it out."),
    ],
)  # fmt: skip
def test_a_key_of_another_model_is_an_error_that_says_whose_it_is(
    task: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as error:
        check_keys(apply(TASKS[task]().config_class(), changes), {})
    assert str(error.value) == message
